import { once } from "node:events";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CliProject, cliProject, sh } from "../cli/cli-project.ts";
import { type ServerFixture, startServer } from "../fleet/postgres/server-fixture.ts";
import { giveGate } from "../tiers/give-gate.ts";
import { startService, type TestService } from "./service-client.ts";

/** A service whose project has a queue, and machines that take part in it: real processes on one Engine. */
export interface QueueService extends AsyncDisposable {
  readonly project: CliProject;
  readonly service: TestService;
  readonly server: ServerFixture;
  /** Another `corral work`, in a copy of the project and with a state directory of its own; it has joined. */
  join(
    name: string,
    ...args: readonly string[]
  ): Promise<ReturnType<CliProject["start"]> & { readonly stateDir: string }>;
}

export async function queueService(): Promise<QueueService> {
  await using made = new AsyncDisposableStack();
  const server = made.use(await startServer());
  const project = made.use(
    await cliProject({
      yaml: { version: 1, sandbox: { paths: { docs: { root: "docs", mode: "ro" } } } },
      workers: {
        brief: {
          image: "corral/base",
          command: sh('read -r n; case "$n" in *bad*) exit 3;; esac; cat /docs/a.txt'),
          sandbox: { inherit: true },
        },
        long: { image: "corral/base", command: sh("sleep 300") },
      },
      files: { "docs/a.txt": "a document\n" },
    }),
  );
  const env = { CORRAL_QUEUE: server.url };
  const service = made.use(await startService(project, { env }));
  const copies = await mkdtemp(join(tmpdir(), "corral-machines-"));
  made.defer(() => rm(copies, { recursive: true, force: true }));
  const rest = made.move();
  return {
    project,
    service,
    server,
    async join(name, ...args) {
      const [dir, state] = [join(copies, name), join(copies, `state-${name}`)];
      await cp(project.dir, dir, { recursive: true });
      await giveGate(state);
      const started = project.start(["work", "-C", dir, "--name", name, "--json", ...args], {
        env: { ...env, CORRAL_STATE_DIR: state },
      });
      const { child, ended } = started;
      rest.defer(async () => {
        // Twice: what runs is ended, and its cells are removed.
        child.kill("SIGTERM");
        child.kill("SIGINT");
        await ended;
      });
      let printed = "";
      while (!printed.includes('"joined"'))
        [printed] = [printed + String((await once(child.stdout ?? child, "data"))[0])];
      return { ...started, stateDir: state };
    },
    [Symbol.asyncDispose]: () => rest[Symbol.asyncDispose](),
  };
}
