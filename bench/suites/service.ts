import { execFile } from "node:child_process";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { ServiceClient } from "../../src/client/client.ts";
import { transportTo } from "../../src/client/node.ts";
import { PROGRAM } from "../../test/cli/program.ts";
import { startService } from "../../test/serve/service-client.ts";
import { interleaved, rate, wallClock } from "../measure.ts";
import { EXEC_BY_HTTP, GET_BY_HTTP, PUT_BY_HTTP, SESSION_EXEC, TAR } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import { sessionExec, sessionOf } from "./exec.ts";
import type { Suite } from "./suite.ts";

const run = promisify(execFile);
const BYTES_PER_MB = 1e6;

/** A session that a service holds: a command, and a large file to it and from it by the command line, against `tar` to `tar` on this machine. */
export const SERVICE: Suite = {
  async measure(bench) {
    await using open = new AsyncDisposableStack();
    const [ours] = bench.ours;
    const { projectDir } = bench;
    const { execRounds, downloadRounds, downloadBytes } = bench.sizes;
    const service = open.use(
      await startService({ dir: projectDir, stateDir: ours.stateDir }, { env: driverOf(ours.env) }),
    );
    const address = `http://127.0.0.1:${service.port}`;
    const client = new ServiceClient(transportTo(address), service.token);
    const { id: session } = await client.call("sessions.open", { worker: "place" });
    const local = await sessionOf(ours, open);
    const execs = await interleaved(
      [
        wallClock(ours.row(SESSION_EXEC), () => sessionExec(local)),
        wallClock(ours.row(EXEC_BY_HTTP), async () => {
          const events = client.stream("sessions.exec", { session, command: "true", asOwner: true });
          let exitCode: number | null = null;
          for await (const event of events) if (event.type === "ended") exitCode = event.exitCode;
          if (exitCode !== 0) throw new Error(`the command ended with ${exitCode}`);
        }),
      ],
      execRounds,
    );
    const [from, copied, back] = ["large", "copied", "back"].map((name) => join(projectDir, name)) as [
      string,
      string,
      string,
    ];
    const inside = join(projectDir, "out", "large");
    await mkdir(copied);
    await fill(from, downloadBytes);
    const corral = (...args: readonly string[]) =>
      run(process.execPath, [PROGRAM, "session", ...args], {
        env: { ...process.env, CORRAL_HOST: address, CORRAL_TOKEN: service.token },
      });
    const moving = (name: string, to: string, act: () => Promise<unknown>) =>
      rate(name, downloadBytes / BYTES_PER_MB, act, {
        before: () => rm(to, { force: true }),
        after: async () => void (await run("cmp", [from, to])),
      });
    const moved = await interleaved(
      [
        moving(TAR, join(copied, "large"), () =>
          run("sh", ["-c", 'tar -C "$1" -cf - large | tar -C "$2" -xf -', "sh", projectDir, copied]),
        ),
        moving(ours.row(PUT_BY_HTTP), inside, () => corral("put", session, from, "/out/large")),
        moving(ours.row(GET_BY_HTTP), back, () => corral("get", session, "/out/large", back)),
      ],
      downloadRounds,
    );
    for (const path of [from, copied, back, inside]) await rm(path, { recursive: true, force: true });
    await client.call("sessions.close", { session, discard: true });
    return {
      groups: [
        groupOf("service-exec", "A command in a session: here, and of a service over HTTP", "ms", execs),
        groupOf(
          "transfer",
          `A file of ${downloadBytes / BYTES_PER_MB} MB to and from a session of a service`,
          "MB/s",
          moved,
        ),
      ],
      notes: ["`put` and `get` are whole commands of the command line; every file is a new one, and compared."],
    };
  },
};

function driverOf({ CORRAL_DRIVER, CORRAL_OCI_RUNTIME }: NodeJS.ProcessEnv): Record<string, string> {
  return {
    ...(CORRAL_DRIVER === undefined ? {} : { CORRAL_DRIVER }),
    ...(CORRAL_OCI_RUNTIME === undefined ? {} : { CORRAL_OCI_RUNTIME }),
  };
}

/** With what no compression and no hole makes smaller. */
async function fill(path: string, bytes: number): Promise<void> {
  await run("sh", ["-c", 'head -c "$2" /dev/urandom > "$1"', "sh", path, String(bytes)]);
}
