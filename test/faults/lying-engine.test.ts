import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { connect } from "../../src/isolation/engine/open.ts";
import { openProject, type ProjectFixture, sh, writable } from "../run/project-fixture.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";
import { type Call, type FaultyEngine, openFaultyEngine } from "./faulty-engine.ts";
import { leftOf } from "./left.ts";

type Config = Record<string, unknown> & { HostConfig: Record<string, unknown> & { Mounts: unknown[] } };

/** What the Engine does in place of what it was asked for; set by each test. */
let lie: { alter?: (config: Config) => void; rewrite?: (call: Call, answer: string) => string } = {};
let engine: FaultyEngine;
let project: ProjectFixture;
let outside: string;

beforeAll(async () => {
  outside = await mkdtemp(join(tmpdir(), "corral-outside-"));
  engine = await openFaultyEngine({
    seed: 1,
    rate: 0,
    alter(call, body) {
      if (call.path !== "/containers/create" || lie.alter === undefined) return body;
      const config = JSON.parse(body) as Config;
      lie.alter(config);
      return JSON.stringify(config);
    },
    rewrite: (call, answer) => lie.rewrite?.(call, answer) ?? answer,
  });
  project = await openProject(
    {
      workers: {
        w: { command: sh("echo ran; exit 3"), sandbox: { zones: [writable("out")] } },
        slow: {
          command: sh("echo up; exec sleep 300"),
          sandbox: { zones: [writable("out")] },
          limits: { timeout: "3s" },
        },
        long: { command: sh("echo up; exec sleep 300"), sandbox: { zones: [writable("out")] } },
      },
      zones: { out: "rw" },
    },
    { engineEnv: engine.env },
  );
});

afterAll(async () => {
  lie = {};
  await project?.[Symbol.asyncDispose]();
  await engine?.[Symbol.asyncDispose]();
  await rm(outside, { recursive: true, force: true });
});

async function nothingLeft(): Promise<void> {
  lie = {};
  expect(await leftOf(project.stateDir)).toEqual([]);
}

interface OtherCell {
  readonly what: string;
  readonly alter: (config: Config) => void;
  /** What Corral says of it, each as the beginning of a line. Absent: it is tried alone. */
  readonly missing?: readonly string[];
}

const set =
  (values: Record<string, unknown>) =>
  ({ HostConfig }: Config): void =>
    void Object.assign(HostConfig, values);

/** Leaves out one of the security options that were asked for. */
const without =
  (option: RegExp, more: readonly string[] = []) =>
  ({ HostConfig }: Config): void => {
    const asked = HostConfig.SecurityOpt as readonly string[];
    HostConfig.SecurityOpt = [...asked.filter((each) => !option.test(each)), ...more];
  };

const OTHER_CELLS: readonly OtherCell[] = [
  { what: "a writable root", alter: set({ ReadonlyRootfs: false }), missing: ["rootFileSystem: "] },
  { what: "a capability", alter: set({ CapAdd: ["SYS_ADMIN"] }), missing: ["capabilities: "] },
  { what: "all capabilities", alter: set({ Privileged: true }) },
  { what: "no seccomp filter", alter: without(/^seccomp/, ["seccomp=unconfined"]), missing: ["seccomp: "] },
  { what: "new privileges", alter: without(/^no-new-privileges/), missing: ["noNewPrivileges: "] },
  { what: "root", alter: (config) => void Object.assign(config, { User: "0:0" }) },
  { what: "a group more", alter: set({ GroupAdd: ["0"] }), missing: ["user: "] },
  {
    what: "a network",
    alter: (config) => {
      config.NetworkDisabled = false;
      config.HostConfig.NetworkMode = "bridge";
    },
    missing: ["network: planned loopback only, found interfaces "],
  },
  {
    what: "the host's network",
    alter: (config) => {
      config.NetworkDisabled = false;
      config.HostConfig.NetworkMode = "host";
    },
  },
  {
    what: "a mount more",
    alter: ({ HostConfig }) => void HostConfig.Mounts.push({ Type: "bind", Source: outside, Target: "/outside" }),
    missing: ["mounts: "],
  },
  {
    what: "another directory in a mount's place",
    alter: ({ HostConfig }) => {
      HostConfig.Mounts = HostConfig.Mounts.map((mount) =>
        (mount as { Target: string }).Target === "/out" ? { Type: "bind", Source: outside, Target: "/out" } : mount,
      );
    },
  },
  { what: "no limit of memory", alter: set({ Memory: 0, MemorySwap: 0 }), missing: ["memory: ", "memoryAndSwap: "] },
  { what: "no limit of processes", alter: set({ PidsLimit: 0 }), missing: ["pids: "] },
  { what: "no limit of files", alter: set({ Ulimits: [] }), missing: ["openFiles: ", "fileSize: "] },
  {
    what: "an executable /tmp",
    alter: ({ HostConfig }) => {
      HostConfig.Tmpfs = Object.fromEntries(
        Object.entries(HostConfig.Tmpfs as Record<string, string>).map(([path, options]) => [
          path,
          options.replace("noexec", "exec"),
        ]),
      );
    },
    missing: ["mounts: "],
  },
  { what: "the host's processes", alter: set({ PidMode: "host" }), missing: ["namespace pid: "] },
  { what: "the host's shared memory", alter: set({ IpcMode: "host" }), missing: ["namespace ipc: "] },
  {
    what: "the host's names",
    alter: (config) => {
      delete config.Hostname;
      config.HostConfig.UTSMode = "host";
    },
    missing: ["namespace uts: "],
  },
];

describe("an Engine that makes another cell than it was asked for", () => {
  it("in many ways at once is refused before its worker begins, for each of them", async () => {
    const together = OTHER_CELLS.filter(({ missing }) => missing !== undefined);
    lie = {
      alter: (config) => {
        for (const { alter } of together) alter(config);
      },
    };
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "refused", exitCode: null, stdout: "" });
    const said = result.violations.flatMap((each) => (each.code === "ENFORCEMENT_MISSING" ? each.missing : []));
    const lines = together.flatMap(({ missing = [] }) => missing);
    expect(lines.filter((line) => !said.some((one) => one.startsWith(line)))).toEqual([]);
    expect(said.find((one) => one.startsWith("mounts: "))).toMatch(/ \/outside.* \/tmp| \/tmp.* \/outside/);
    await nothingLeft();
  });

  it.each(OTHER_CELLS.filter(({ missing }) => AT_LENGTH || missing === undefined))(
    "($what) is found out: the run is refused before its worker begins",
    async ({ alter }) => {
      lie = { alter };
      const result = await project.run("w");
      expect(result, JSON.stringify(result)).toMatchObject({ status: "refused", exitCode: null, stdout: "" });
      await nothingLeft();
    },
  );
});

describe("an Engine that says other things than are so", () => {
  const stateOf = (change: (state: Record<string, unknown>) => void) => (call: Call, answer: string) => {
    if (call.method !== "GET" || !/^\/containers\/[^/]+\/json$/.test(call.path)) return answer;
    const told = JSON.parse(answer) as { State?: Record<string, unknown> };
    if (told.State !== undefined) change(told.State);
    return JSON.stringify(told);
  };

  it.each<[string, (call: Call, answer: string) => string]>([
    ["another exit code to the wait", ({ path }, answer) => (path.endsWith("/wait") ? '{"StatusCode":0}' : answer)],
    ["no exit code to the wait", ({ path }, answer) => (path.endsWith("/wait") ? '{"StatusCode":null}' : answer)],
    ["another exit code to an inspection", stateOf((state) => void Object.assign(state, { ExitCode: 0 }))],
    ["that it still runs", stateOf((state) => Object.assign(state, { Running: true, Status: "running" }))],
    ["no state at all", stateOf((state) => void Object.assign(state, { Running: "yes" }))],
  ])("(%s) does not make a success of a failure", async (what, rewrite) => {
    lie = { rewrite };
    const result = await project.run("w");
    // The exit code is believed where the other way of asking confirms it.
    const expected = what.startsWith("no exit code")
      ? { status: "failed", exitCode: 3 }
      : { status: "lost", exitCode: null };
    expect(result, JSON.stringify(result)).toMatchObject(expected);
    await nothingLeft();
  });

  it("(images of no id) is refused with a clear message, and nothing is made", async () => {
    lie = { rewrite: ({ path }, answer) => (path.startsWith("/images/") ? '{"Id":"latest","Config":{}}' : answer) };
    const result = await project.run("w");
    expect(result).toMatchObject({ status: "lost", exitCode: null });
    const told = project.events.findLast((event) => event.type === "trouble");
    expect(told?.type === "trouble" && told.detail).toMatch(/the Engine sent an answer that cannot be read: .*latest/);
    await nothingLeft();
  });
});

describe("a cell that is not Corral's alone", () => {
  async function cellOf(run: Promise<unknown>, worker: string): Promise<string> {
    await Promise.race([project.printed(worker, "up"), run]);
    const started = project.events.findLast((event) => event.type === "started" && event.worker === worker);
    return `corral-${worker}-${started?.run}`;
  }

  it("and is removed by another while its worker runs is lost, and nothing is left", async () => {
    const run = project.run("long");
    const name = await cellOf(run, "long");
    const { docker } = await connect({});
    await docker.getContainer(name).remove({ force: true });
    const result = await run;
    expect(result, JSON.stringify(result)).toMatchObject({
      status: expect.stringMatching(/^(lost|signaled)$/),
      exitCode: null,
    });
    await nothingLeft();
  });

  it("and is paused by another ends at its time limit, and nothing is left", async () => {
    const run = project.run("slow");
    const name = await cellOf(run, "slow");
    const { docker } = await connect({});
    await docker.getContainer(name).pause();
    expect((await run).status).toMatch(/^(timed_out|lost)$/);
    await nothingLeft();
  });

  it("and whose connections all break at once, as with an Engine that is restarted, is lost and removed", async () => {
    const spec = { workers: { cut: { command: sh("echo up; exec sleep 300") } } };
    await using other = await openProject(spec, { engineEnv: engine.env });
    const run = other.run("cut");
    await other.printed("cut", "up");
    const begun = performance.now();
    engine.breakAll();
    expect(await run).toMatchObject({ status: "lost", exitCode: null, stdout: "up\n" });
    expect(performance.now() - begun).toBeLessThan(20_000);
    expect(await leftOf(other.stateDir)).toEqual([]);
  });
});

describe("an image that lies about what it runs", () => {
  const TAG = "corral-faults/liar";

  it("runs nothing of its own before the worker, beside it, or as another user", { timeout: 60_000 }, async () => {
    const { docker } = await connect({});
    const base = await docker.getImage("corral/base").inspect();
    const context = pack();
    const lines = [
      `FROM ${base.Id}`,
      "USER 0",
      "WORKDIR /etc",
      "ENV LD_PRELOAD=/nothing.so ENV=/tmp/rc BASH_ENV=/tmp/rc IFS=/ PS4=x CORRAL_RUN=forged HOME=/etc PATH=/nowhere",
      "VOLUME /data /root",
      "EXPOSE 80",
      "STOPSIGNAL SIGWINCH",
      'HEALTHCHECK --interval=1s CMD ["/bin/sh", "-c", "touch /out/health"]',
      "ONBUILD RUN touch /onbuild",
      "LABEL dev.corral.run=x dev.corral.owner=y dev.corral.seal=z",
      'ENTRYPOINT ["/bin/sh", "-c", "touch /out/entry; exec sleep 60"]',
      'CMD ["forged"]',
    ];
    context.entry({ name: "Dockerfile" }, lines.join("\n"));
    context.finalize();
    const building = await docker.buildImage(context as unknown as NodeJS.ReadableStream, { t: TAG });
    await new Promise((resolve, reject) =>
      docker.modem.followProgress(building, (error) => (error ? reject(error) : resolve(null))),
    );
    try {
      const script =
        "echo $(id -u) $PWD $CORRAL_RUN; ls /out; grep -c . /proc/self/mountinfo >/dev/null; sleep 2; ls /out";
      const w = {
        image: TAG,
        command: ["/bin/sh", "-c", script],
        sandbox: { zones: [writable("out")] },
        env: { PATH: "/usr/bin:/bin" },
      };
      await using own = await openProject({ workers: { w }, zones: { out: "rw" } });
      const result = await own.run("w");
      expect(result, JSON.stringify(result)).toMatchObject({ status: "succeeded" });
      expect(result.stdout).toMatch(/^65532 \S+ ?\S*\n$/);
      expect(result.stdout).not.toContain("forged");
      expect(await leftOf(own.stateDir)).toEqual([]);
    } finally {
      await docker.getImage(TAG).remove({ force: true });
    }
  });
});
