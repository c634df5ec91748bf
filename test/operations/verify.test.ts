import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { reportText } from "../../src/cli/machine/verify.ts";
import { colorsFor } from "../../src/cli/terminal/terminal.ts";
import { PACKAGE_ROOT } from "../../src/declarations/place/package-root.ts";
import { loadPolicy } from "../../src/declarations/policy/policy.ts";
import { isRunning, ThrowAwayFolder } from "../../src/files/host/results-folder.ts";
import { ownNamespaces } from "../../src/isolation/gate/verify.ts";
import { attacksOn, attemptIn, THREATS, type Threat, untriedIn } from "../../src/operations/verify/attacks.ts";
import { titleOf, verdictOf, verifyHtml } from "../../src/operations/verify/report.ts";
import { verifyMachine } from "../../src/operations/verify/verify.ts";
import { textBeside } from "../../src/platform/text-beside.ts";
import type { RunResult } from "../../src/run/model/result.ts";
import type { DriverChoice } from "../../src/sandbox/driver-choice.ts";

const PROGRAM = textBeside(import.meta.url, "../../src/operations/verify/inside.pl");
const TEXT = "a text that only this machine has";
let dir: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "cv-"));
  for (const name of ["docs", "sockets"]) await mkdir(join(dir, name));
  await writeFile(join(dir, "docs/a.txt"), "a", { mode: 0o666 });
  await writeFile(join(dir, "canary-of-a-test"), TEXT);
});
afterAll(() => rm(dir, { recursive: true }));

/** What gets through in a container with these flags in place of, or beside, strict ones. */
async function through(
  flags: readonly string[],
  without: readonly string[] = [],
  mode = "inside",
  more: readonly string[] = [],
): Promise<string[]> {
  return (await printedBy(flags, without, mode, more)).flatMap((line) => {
    const attempt = attemptIn(line);
    return attempt === null || attempt.saw === null ? [] : [`${attempt.threat}: ${attempt.what}`];
  });
}

async function printedBy(
  flags: readonly string[],
  without: readonly string[] = [],
  mode = "inside",
  more: readonly string[] = [],
): Promise<string[]> {
  const strict = {
    network: ["--network", "none"],
    root: ["--read-only"],
    capabilities: ["--cap-drop", "ALL"],
    privileges: ["--security-opt", "no-new-privileges"],
    seccomp: ["--security-opt", `seccomp=${join(PACKAGE_ROOT, "policies/seccomp.json")}`],
    tmp: ["--tmpfs", "/tmp:noexec"],
    user: ["--user", "65532:65532"],
    memory: ["--memory", "64m", "--memory-swap", "64m"],
    pids: ["--pids-limit", "32"],
    docs: ["--volume", `${join(dir, "docs")}:/docs:ro`],
    home: ["--env", "HOME=/tmp"],
  };
  const kept = Object.entries(strict).flatMap(([name, each]) => (without.includes(name) ? [] : each));
  const namespaces = Object.entries(ownNamespaces()).map(([kind, id]) => `ns_${kind}=${id}`);
  const canary = [`canary=${join(dir, "canary-of-a-test")}`, "name=canary-of-a-test", `text=${TEXT}`];
  const args = [...canary, "hosts=127.0.0.1", "port=9", "mib=256", "count=64", ...namespaces];
  const command = ["run", "--rm", ...kept, ...flags, "corral/base", "perl", "-e", PROGRAM, mode, ...args, ...more];
  const { stdout } = await promisify(execFile)("docker", command, { maxBuffer: 1024 ** 2 }).catch(
    (error: { stdout?: string }) => ({ stdout: error.stdout ?? "" }),
  );
  return stdout.split("\n");
}

type Weakness = readonly [flags: readonly string[], without: readonly string[], finds: Threat];
/**
 * Containers that are made worse on purpose: with what, without what of the strict one, and what must be found. One has several weaknesses of which
 * none leads to what must be found for another.
 */
const WEAKENED: readonly Readonly<Record<string, Weakness>>[] = [
  {
    "no seccomp filter": [["--security-opt", "seccomp=unconfined"], ["seccomp"], "kernel"],
    "the folder above": [["--volume", "DIR:/above:ro"], [], "read"],
    "a device of the host": [["--device", "/dev/null:/dev/kvm"], [], "devices"],
  },
  {
    "the filter of the Engine": [[], ["seccomp"], "kernel"],
    "a socket of another program": [["--volume", "DIR/sockets:/run:ro"], [], "engine"],
  },
  {
    "a root file system that can be written": [[], ["root"], "write"],
    "programs in /tmp": [["--tmpfs", "/tmp:exec"], ["tmp"], "execution"],
  },
  {
    "a writable folder that was to be read-only": [["--volume", "DIR/docs:/docs"], ["docs"], "write"],
    "a variable of the host": [["--env", `TOKEN=${TEXT}`], [], "read"],
    "unmasked /proc": [["--security-opt", "systempaths=unconfined"], [], "kernel-files"],
  },
  {
    "the usual capabilities": [[], ["capabilities"], "privileges"],
    "the network of the host": [["--network", "host"], ["network"], "namespaces"],
  },
  {
    "a capability for networks": [["--cap-add", "NET_ADMIN"], [], "privileges"],
    "the processes of the host": [["--pid", "host"], [], "namespaces"],
  },
  {
    "a capability for everything": [["--cap-add", "SYS_ADMIN"], [], "privileges"],
    "the shared memory of the host": [["--ipc", "host"], [], "namespaces"],
  },
  {
    "a capability to trace": [["--cap-add", "SYS_PTRACE"], [], "privileges"],
    "the host's name": [["--uts", "host"], [], "namespaces"],
  },
  {
    "privileges by setuid programs": [[], ["privileges"], "privileges"],
    "/proc of the host": [["--volume", "/proc:/host-proc"], [], "namespaces"],
  },
  {
    "user 0": [[], ["user"], "privileges"],
    "/sys of the host": [["--volume", "/sys:/sys"], [], "namespaces"],
  },
  {
    "a further group": [["--group-add", "999"], [], "privileges"],
    "the disk of the host": [["--volume", "/:/host:ro"], [], "read"],
  },
  {
    "all devices of the host": [["--volume", "/dev:/dev"], [], "devices"],
    "a second interface": [[], ["network"], "network"],
  },
];
/** What they have of the host is seen without the search of all files, which would be one of the whole host's. */
const SEARCHED_BRIEFLY: readonly string[] = ["/proc of the host", "/sys of the host", "the disk of the host"];

describe("the attacks of corral verify", () => {
  it("get nothing in a strict container", async () => {
    expect(await through([])).toEqual([]);
  });

  it("find every container that was made worse", async () => {
    const server = createServer().listen(join(dir, "sockets/s"));
    const missed: string[] = [];
    const rest = [...WEAKENED];
    const worker = async (): Promise<void> => {
      for (let next = rest.shift(); next !== undefined; next = rest.shift()) {
        const flags = Object.values(next).flatMap(([each]) => each.map((flag) => flag.replace("DIR", dir)));
        const without = Object.values(next).flatMap(([, each]) => each);
        const isBrief = Object.keys(next).some((name) => SEARCHED_BRIEFLY.includes(name));
        const found = await through(flags, without, "inside", isBrief ? ["seconds=0.5"] : []);
        for (const [name, [, , threat]] of Object.entries(next))
          if (!found.some((line) => line.startsWith(`${threat}:`))) missed.push(`${name}: found ${found.join(", ")}`);
      }
    };
    await Promise.all([worker(), worker(), worker()]);
    server.close();
    expect(missed).toEqual([]);
  });

  it("do not take a search that was cut for one that found nothing", async () => {
    const cut = await printedBy([], [], "inside", ["seconds=0.001"]);
    expect(cut.flatMap((line) => untriedIn(line) ?? []).map(({ threat }) => threat)).toEqual(["read", "engine"]);
    expect(cut.flatMap((line) => attemptIn(line) ?? []).filter(({ what }) => what.startsWith("find "))).toEqual([]);
  });

  it("find limits that are not there", async () => {
    const [limited, memory, processes] = await Promise.all([
      through([], [], "memory"),
      through([], ["memory"], "memory"),
      through([], ["pids"], "processes"),
    ]);
    expect(limited).toEqual([]);
    expect(memory).toEqual(["memory: use 256 MiB, four times its limit"]);
    expect(processes).toEqual(["processes: start 64, more than its limit"]);
  });
});

describe("corral verify", () => {
  it("finds a process of a container that still runs", async () => {
    const mark = `mark-${process.pid}-of-a-test`;
    expect(await isRunning(mark)).toBe(false);
    // Its own client has not these words.
    const program = `$0 = "mark-" . "${process.pid}-of-a-test"; <STDIN>`;
    const { child } = promisify(execFile)("docker", [
      "run",
      "--rm",
      "-i",
      "--init",
      "corral/base",
      "perl",
      "-e",
      program,
    ]);
    await expect.poll(() => isRunning(mark), { interval: 100 }).toBe(true);
    child.stdin?.end();
    await expect.poll(() => isRunning(mark), { interval: 100 }).toBe(false);
  });

  it("says what a run and a command cost, as far as they were measured", () => {
    const report = {
      policy: "batch",
      driver: "runc",
      runtime: null,
      threats: [],
      host: [],
      ok: true,
      durationMs: 9000,
    };
    const title = (execMs: number | null): string =>
      titleOf({ ...report, cost: { runMs: 150, itemsPerSecond: 11.5, execMs } });
    expect(title(6.9)).toContain("a run takes 150 ms, a command in a session 6.9 ms, and a fleet starts 11.5");
    expect(title(null)).toContain("a run takes 150 ms, and a fleet starts 11.5");
  });

  it("does not say that a limit held when its program did nothing", async () => {
    await using folder = await ThrowAwayFolder.make("cv-");
    for (const name of ["disk"]) await folder.makeWritable(name);
    const policy = await loadPolicy("default", { dirs: [] });
    const host = { canary: { name: "c", text: "t" }, addresses: [], port: 1, otherPort: 2, abstract: "a" };
    const result = { status: "failed", stdout: "", stderr: "", calls: [] } as unknown as RunResult;
    for (const attack of attacksOn({ ...host, folder, namespaces: {}, kernel: "", programs: [] }, policy)) {
      const judged = attack.saysEnd === true ? [] : ((await attack.judge?.(result)) ?? []);
      expect([attack.name, judged.filter(({ saw }) => saw === null)]).toEqual([attack.name, []]);
    }
  });

  it("finds that every wall of this machine holds", async () => {
    const reported = (policy: string, driver: DriverChoice) =>
      verifyMachine(
        { policy, policiesDir: null, runtime: null, driver, measures: false, engineEnv: process.env },
        { signal: new AbortController().signal, onAttempts: () => {} },
      );
    // One has an allow list, and the other scrubbed cells.
    const reports = await Promise.all([reported("default", "engine"), reported("batch", "prefer-runc")]);
    const weak = reports.flatMap(({ threats }) =>
      threats.filter(({ through: some, notTried }) => some.length > 0 || notTried !== null),
    );
    expect(weak).toEqual([]);
    expect(reports).toMatchObject([{ ok: true }, { ok: true }]);
    const tried = reports.flatMap(({ threats }) => threats.flatMap(({ threat, tried: n }) => (n > 0 ? [threat] : [])));
    expect([...new Set(tried)].toSorted()).toEqual(Object.keys(THREATS).toSorted());
  });

  it("says what was not tried, and why, and does not call that well", async () => {
    const report = await verifyMachine(
      {
        policy: "untrusted",
        policiesDir: null,
        runtime: "no-such-runtime",
        driver: "engine",
        measures: false,
        engineEnv: process.env,
      },
      { signal: new AbortController().signal, onAttempts: () => {} },
    );
    expect(report).toMatchObject({ ok: false, driver: null });
    const memory = report.threats.find(({ threat }) => threat === "memory");
    expect(memory).toMatchObject({ tried: 0, notTried: expect.stringContaining("no-such-runtime") });
    // Each threat has the same reason, which is printed once.
    const text = reportText(report, colorsFor(process.stdout, { NO_COLOR: "1" }));
    expect(text.match(/no-such-runtime\./g)?.length).toBe(1);
    expect(text.match(/^\? .* not tried$/gm)?.length).toBeGreaterThan(10);
    const page = verifyHtml([report]);
    expect(page).toContain("not everything could be tried");
    const through = [{ what: "be user 0", saw: "is user 0" }];
    const worse = { ...report, threats: report.threats.map((one, at) => (at === 0 ? { ...one, through } : one)) };
    expect(verdictOf([report, worse])).toBe("Not all of it held: 1 attack got through.");
    expect(verdictOf([{ ...report, threats: [] }])).toBe("All of it held.");
    expect(page.match(/<td class="not">not tried<\/td><td>[^<]*no-such-runtime/g)?.length).toBeGreaterThan(10);
    expect(page).not.toContain("<script");
  });
});
