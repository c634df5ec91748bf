import { existsSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { loadPolicy, loadSeccompProfile } from "../../../src/declarations/policy/policy.ts";
import { serveCommand } from "../../../src/isolation/plan/mounts.ts";
import { KEEP_COMMAND, type Plan } from "../../../src/isolation/plan/plan.ts";
import type { Driver } from "../../../src/isolation/port/driver.ts";
import { ociSeccomp, plannedSeccomp } from "../../../src/isolation/seccomp/planned-profile.ts";
import { startOrchestrator } from "../../run/orchestrator.ts";
import { sh, writeProject } from "../../run/project-fixture.ts";
import { mount } from "../../sandbox/sandboxes.ts";
import { giveGate } from "../../tiers/give-gate.ts";
import { cellOf, openEngine } from "../engine/engine.ts";
import { isCrun, openRunc, type Runc } from "./runc.ts";

let runc: Runc;
beforeAll(async () => {
  runc = await openRunc();
});
afterAll(() => runc[Symbol.asyncDispose]());

/** What a worker finds: everything by which one kind of cell could be weaker than the other. */
const LOOK = `
while read -r _ _ _ _ path options rest; do echo "mount $path $options $rest"; done < /proc/self/mountinfo
grep -E '^(Uid|Gid|Groups|Cap|NoNewPrivs|Seccomp|Sig(Blk|Ign)|Cpus_allowed_list)' /proc/self/status
cat /proc/self/limits; env | grep -v ^CORRAL_ | sort
ls -A -l /dev | sed 's/ [A-Z][a-z][a-z] .* / /'; ls -la /dev/pts /dev/shm | wc -l
cat /etc/hosts /etc/hostname /etc/resolv.conf; uname -n
cat /proc/self/oom_score_adj; umask; ulimit -a; cat /proc/1/comm
for file in /proc/keys /proc/kcore /proc/timer_list /proc/sysrq-trigger /sys/firmware /proc/acpi /proc/sys/kernel/core_pattern; do
  head -c 1 $file 2>&1 | wc -c; ( : > $file ) 2> /dev/null || echo shut $file
done
cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/net/ipv4/ping_group_range; ls /sys/class/net
cd /sys/fs/cgroup; cat memory/memory.limit_in_bytes pids/pids.max cpu/cpu.cfs_quota_us memory.max pids.max cpu.max 2> /dev/null
sort devices/devices.list 2> /dev/null; true
`;

async function seen(driver: Driver, plan: Plan, pins: Parameters<Driver["start"]>[0]["pins"]): Promise<string> {
  let text = "";
  const onOutput = (_: string, chunk: Buffer): void => {
    text += chunk;
  };
  await using cell = cellOf(await driver.start({ plan, pins, onOutput, signal: new AbortController().signal }));
  cell.release(Buffer.alloc(0));
  expect(await cell.exit).toMatchObject({ kind: "exited", code: 0 });
  return text;
}

interface Seen {
  readonly lines: readonly string[];
  /** What each mount forbids, and its type, by its path. */
  readonly mounts: ReadonlyMap<string, { readonly forbids: readonly string[]; readonly type: string }>;
}

function parsed(text: string): Seen {
  const all = text.split("\n");
  const mounts = all.filter((line) => line.startsWith("mount ")).map((line) => line.split(" "));
  return {
    lines: all.filter((line) => !line.startsWith("mount ")),
    mounts: new Map(
      mounts.map(([, path = "", options = "", ...rest]) => {
        const forbids = options.split(",").filter((option) => ["ro", "nosuid", "nodev", "noexec"].includes(option));
        return [path, { forbids, type: rest[rest.indexOf("-") + 1] ?? "" }];
      }),
    ),
  };
}

const INIT = "/usr/sbin/docker-init";

/** Lines that say how many processes the user may have. With systemd, an Engine has no such bound, and a cell of runc has that of the first process. */
const isBound = (line: string): boolean => /^(?:Max )?process(?:es)?\b/.test(line);

/** All is the same, but for that bound, which may be stricter. */
function expectNoWeaker(ours: readonly string[], engines: readonly string[]): void {
  expect(ours.filter((line) => !isBound(line))).toEqual(engines.filter((line) => !isBound(line)));
  const [own, theirs] = [ours, engines].map((lines) =>
    lines.filter(isBound).flatMap((line) => line.match(/\d+|unlimited/g) ?? []),
  ) as [string[], string[]];
  expect(own.length).toBeGreaterThan(0);
  const numbers = (texts: string[]): number[] =>
    texts.map((text) => (text === "unlimited" ? Number.POSITIVE_INFINITY : Number(text)));
  expect(numbers(own).map((bound, n) => Math.max(bound, numbers(theirs)[n] ?? 0))).toEqual(numbers(theirs));
}

describe("a cell of runc and one of the Engine, of the same plan", () => {
  it.each(["untrusted", "default", "batch", "ci"])("show a worker the same under the policy %s", async (name) => {
    const policy = await loadPolicy(name, { dirs: [] });
    await using engine = await openEngine();
    const [outer, inner] = [await engine.folder("data"), await engine.folder(isCrun ? "inner" : "data/inner")];
    const innerPath = isCrun ? "/inner" : "/data/inner";
    const approved = { write: "pre_approved", delete: "pre_approved" } as const;
    const asked = {
      command: ["sh", "-c", LOOK],
      policy,
      mounts: [mount("/data", "rw", { host: outer, approval: approved }), mount(innerPath, "ro", { host: inner })],
    };
    const { plan, pins } = await engine.plan(asked);
    const engines = parsed(await seen(engine.driver, plan, pins));
    const ours = parsed(await seen(runc.driver, plan, pins));
    // Stricter: the console of the host is none of its devices; crun has it, as the Engine. The link is to what is hidden, and crun's is always there.
    const isCommon = (line: string): boolean => line !== "c 5:1 rwm" && !(isCrun && /^l.* \/proc\/kcore$/.test(line));
    expectNoWeaker(ours.lines.filter(isCommon), engines.lines.filter(isCommon));
    expect(isCrun || !ours.lines.includes("c 5:1 rwm")).toBe(true);
    // Newer Engines hide this too, and old ones do not. The init is where no link of an image leads.
    const paths = [...ours.mounts.keys()]
      .filter((path) => path !== "/proc/interrupts" || engines.mounts.has(path))
      .map((path) => (path === "/.corral/docker-init" ? INIT : path));
    expect(paths.sort()).toEqual([...engines.mounts.keys()].sort());
    for (const [path, { forbids, type }] of engines.mounts) {
      const own = ours.mounts.get(path === INIT ? "/.corral/docker-init" : path);
      // crun hides files behind the null device of the machine.
      if (isCrun && own?.type === "devtmpfs") continue;
      expect([path, own?.type]).toEqual([path, type]);
      expect([path, ...forbids.filter((option) => !own?.forbids.includes(option))]).toEqual([path]);
    }
    expect(ours.mounts.get("/")?.forbids).toEqual(["ro", "nodev"]);
    // Stricter: nothing in a granted directory is a device or gives the rights of its owner.
    expect(ours.mounts.get("/data")?.forbids).toEqual(["nosuid", "nodev"]);
    expect(ours.mounts.get(innerPath)?.forbids).toEqual(["ro", "nosuid", "nodev"]);
  });

  it("show a worker the same, whatever Corral was started with", async () => {
    const traits = `nice; ionice; taskset -p $$; chrt -p $$; umask; cat /proc/self/personality /proc/self/loginuid
      cat /proc/self/limits /proc/self/oom_score_adj; grep -E '^Sig(Blk|Ign)' /proc/self/status`;
    // A process that is like no other: each of these is passed on to what it starts.
    const own = [
      ["sh", "-c", 'echo 4242 > /proc/self/loginuid; echo 700 > /proc/self/oom_score_adj; umask 077; exec "$@"', "sh"],
      ["prlimit", "--cpu=90:", "--as=90000000000:", "--stack=1000000:", "--nproc=5000:", "--memlock=100000:"],
      ["prlimit", "--sigpending=100:", "--locks=100:", "--data=90000000000:", "--rttime=100000000:"],
      ["nohup", "setarch", "-R", "chrt", "--batch", "0", "nice", "-n", "7", "ionice", "-c", "3", "taskset", "1"],
    ].flat();
    const base = await mkdtemp(join(tmpdir(), "cr-"));
    const places = { projectDir: join(base, "p"), stateDir: join(base, "s") };
    const worker = { command: sh(traits), image: "corral/debian:bookworm" };
    writeProject(places.projectDir, { workers: { worker } });
    await giveGate(places.stateDir);
    const shown = async (driver: "engine" | "runc", prefix: readonly string[]): Promise<string> => {
      const options = { ...places, worker: "worker", runs: 1, env: { CORRAL_DRIVER: driver } };
      await using process = startOrchestrator(options, prefix);
      expect([await process.exit, process.stderr().replace("nohup: ignoring input\n", "")]).toEqual([0, ""]);
      const result = process.lines.find(({ ended }) => ended !== undefined)?.ended;
      expect(result).toMatchObject({ status: "succeeded" });
      return String(result?.output).replace(/pid \d+/g, "pid N");
    };
    try {
      const engines = await shown("engine", []);
      expect(engines).toContain("Max pending signals");
      const ours = await shown("runc", []);
      expectNoWeaker(ours.split("\n"), engines.split("\n"));
      expect(await shown("runc", own)).toBe(ours);
    } finally {
      await rm(base, { recursive: true });
    }
  });

  it("have the same seccomp filter, whatever kind of cell it is", async () => {
    const strictest = await loadSeccompProfile();

    for (const kind of ["once", "serves"] as const) {
      const { plan: planned, pins } = await runc.plan({ command: KEEP_COMMAND });
      const served = { command: serveCommand(KEEP_COMMAND, [], planned.limits.memoryBytes) };
      const plan: Plan = kind === "serves" ? { ...planned, ...served, serves: true } : planned;
      const start = await runc.engineDriver.start({
        plan,
        pins,
        onOutput: () => {},
        signal: new AbortController().signal,
      });
      await using cell = cellOf(start);
      // Of a containerd that the Engine started, or of the machine's.
      const configs = ["docker/containerd/daemon", "containerd"].map(
        (of) => `/run/${of}/io.containerd.runtime.v2.task/moby/${cell.id}/config.json`,
      );
      const { linux } = JSON.parse(await readFile(configs.find((file) => existsSync(file)) ?? "", "utf8"));
      // The Engine leaves out a second value of 0, which is what runc takes for none.
      const ours = JSON.stringify(ociSeccomp(plannedSeccomp(plan, strictest), process.arch)).replaceAll(
        ',"valueTwo":0',
        "",
      );
      expect(JSON.parse(ours)).toEqual(linux.seccomp);
    }
  });
});
