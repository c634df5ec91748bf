import { describe, expect, it } from "vitest";
import { fleetPermission } from "../../src/fleet/running/fleet-parts.ts";
import { withArguments } from "../../src/operations/workers.ts";
import { openSession } from "../../src/run/open-session.ts";
import { run } from "../../src/run/run.ts";
import { SPEC } from "../fleet/fleet-fixture.ts";
import type { FakeProgram } from "../isolation/fake/program.ts";
import { memoryEngine } from "./memory-engine.ts";
import { openProject, type ProjectSpec } from "./project-fixture.ts";

const died = (signal: AbortSignal): Promise<never> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));

const PROGRAMS: Readonly<Record<string, FakeProgram>> = {
  cat: ({ stdin, stdout }) => {
    stdout.write(stdin);
    return 0;
  },
  fails: ({ stderr }) => {
    stderr.write("no\n");
    return 3;
  },
  segfaults: () => 139,
  sleeps: async ({ stdout, signal }) => {
    stdout.write("up\n");
    return await died(signal);
  },
  stubborn: ({ stdout }) => {
    stdout.write("up\n");
    return new Promise<never>(() => {});
  },
  polite: async ({ stdout, signal }) => {
    await died(signal).catch(() => stdout.write("bye\n"));
    return 7;
  },
  floods: async ({ stdout, signal }) => {
    stdout.write("x".repeat(200_000));
    return await died(signal);
  },
  hungry: () => ({ kind: "exited", code: 137, outOfMemory: true, usage: { cpuMs: null, memoryBytesPeak: null } }),
  vanishes: () => ({ kind: "lost", reason: "the engine went away at /var/run/secret.sock" }),
  env: ({ env, stdout }) => {
    stdout.write(JSON.stringify(env));
    return 0;
  },
};

const worker = (program: string, more: object = {}) => ({ command: [program], ...more });

async function opened(spec: Partial<ProjectSpec>, deviate?: Parameters<typeof memoryEngine>[0]["deviate"]) {
  const engine = memoryEngine({ programs: PROGRAMS, ...(deviate === undefined ? {} : { deviate }) });
  const project = await openProject({ workers: {}, ...spec }, { engine: engine.open });
  return { project, engine, [Symbol.asyncDispose]: () => project[Symbol.asyncDispose]() };
}

describe("a worker without a command and a model", () => {
  it("has sessions, and no run, fleet or shared cell", async () => {
    await using o = await opened({ workers: { desk: { shell_rules: { default: "pre_approved" } } } });
    const { environment } = o.project.corral;
    const worker = environment.project.workers.get("desk");
    if (worker === undefined) throw new Error("there is no worker desk");
    const { signal } = new AbortController();
    const refused = await run({ worker, signal }, environment);
    expect(refused).toMatchObject({ status: "refused", violations: [{ code: "NOTHING_TO_RUN" }] });
    expect(JSON.stringify(refused)).toContain("it is only for sessions. Use `corral session start desk`");
    for (const reuse of ["fresh", "scrubbed"] as const)
      expect(await fleetPermission({ ...SPEC, reuse, worker: "desk" }, environment)).toEqual({
        ok: false,
        violations: [{ code: "NOTHING_TO_RUN", worker: "desk" }],
      });
    expect(() => withArguments(worker, ["a"])).toThrow("it is only for sessions");
    const opening = await openSession({ worker, signal }, environment);
    expect(opening.ok).toBe(true);
    if (opening.ok) await opening[Symbol.asyncDispose]();
  });
});

describe("a run", () => {
  it("that meets a bug rejects with it, leaves the report of it to its caller, and is recorded as lost", async () => {
    await using o = await opened({ workers: { w: worker("cat") } });
    const { environment } = o.project.corral;
    const { grants } = environment;
    const broken = new Proxy(grants, {
      get: (of, name) => {
        if (name === "join") throw new RangeError("no stack left");
        const own: unknown = Reflect.get(of, name);
        return typeof own === "function" ? own.bind(of) : own;
      },
    });
    const w = environment.project.workers.get("w");
    if (w === undefined) throw new Error("there is no worker w");
    const running = run({ worker: w, signal: new AbortController().signal }, { ...environment, grants: broken });
    await expect(running).rejects.toThrow("no stack left");
    expect(o.project.events).toMatchObject([
      { type: "requested" },
      { type: "ended", result: { status: "lost", error: { code: "INTERNAL" } } },
    ]);
  });

  it.each([
    ["cat", { status: "succeeded", exitCode: 0, signal: null, error: null, stdout: '{"a":[1,"ü"]}\n' }],
    ["fails", { status: "failed", exitCode: 3, stderr: "no\n", error: { code: "FAILED" } }],
    ["segfaults", { status: "signaled", exitCode: 139, signal: "SIGSEGV" }],
    ["hungry", { status: "oom_killed", exitCode: null, signal: "SIGKILL" }],
    ["vanishes", { status: "lost", exitCode: null }],
  ])("has the result of its worker's end: %s", async (program, result) => {
    await using o = await opened({ workers: { w: worker(program) } });
    expect(await o.project.run("w", { input: { a: [1, "ü"] } })).toMatchObject(result);
    expect(await o.project.traces()).toEqual([]);
  });

  it("reports what happens in order, and its plan", async () => {
    await using o = await opened({ workers: { w: worker("cat") } });
    const { run } = await o.project.run("w", { input: 1 });
    expect(o.project.events.map(({ type }) => type)).toEqual(["requested", "started", "output", "ended"]);
    expect(new Set(o.project.events.map((event) => event.run))).toEqual(new Set([run]));
    expect(o.project.planOf("w")).toMatchObject({ run, command: ["cat"] });
  });

  it("has the mount `home` as its home, in its cell and for its tools, if it sees all of it", async () => {
    const zones = { zones: [{ name: "home" }] };
    const workers = {
      all: worker("env", { sandbox: zones }),
      part: worker("env", { sandbox: { allow_read: ["~/sub"] } }),
    };
    await using o = await opened({ workers, zones: { home: "ro" }, files: { "home/a": "a", "home/sub/b": "b" } });
    const { project, environment } = o.project.corral;
    const seen = async (name: string, path: string) => {
      const definition = project.workers.get(name);
      if (definition === undefined) throw new Error(`no worker ${name}`);
      const { signal } = new AbortController();
      const session = await openSession({ worker: definition, signal }, environment);
      if (!session.ok) throw new Error(JSON.stringify(session.violations));
      await using _ = session;
      const { text, message } = {
        text: "",
        message: "",
        ...(await session.session.runTool("read_file", { path }, signal)),
      };
      return [JSON.parse((await o.project.run(name)).stdout).HOME, text || message.split("\n")[0]];
    };
    expect(await seen("all", "~/a")).toEqual(["/home", expect.stringContaining("a")]);
    expect(await seen("part", "~/sub/b")).toEqual(["/home/worker", expect.stringContaining("no home directory here")]);
  });

  it("gives its worker nothing of this process's environment", async () => {
    process.env.CORRAL_TEST_CANARY = "canary";
    await using o = await opened({ workers: { w: worker("env") } });
    const { stdout } = await o.project.run("w");
    delete process.env.CORRAL_TEST_CANARY;
    expect(stdout).toContain("HOME");
    expect(stdout).not.toContain("canary");
  });
});

it("a project is not opened whose worker names a policy that does not exist", async () => {
  await expect(opened({ workers: { w: worker("cat", { policy: "no-such" }) } })).rejects.toThrow("no-such");
});

describe("a run is refused, and leaves no cell,", () => {
  it.each([
    ["of a command that its image does not hold", worker("missing")],
    [
      "that asks for a directory that the project does not have",
      worker("cat", { sandbox: { zones: [{ name: "no" }] } }),
    ],
  ])("%s", async (_, w) => {
    await using o = await opened({ workers: { w } });
    const result = await o.project.run("w");
    expect(result).toMatchObject({ status: "refused", exitCode: null });
    expect(result.violations).not.toEqual([]);
    expect(o.engine.containers.size).toBe(0);
  });

  it("whose cell is not what was planned", async () => {
    await using o = await opened({ workers: { w: worker("cat") } }, (sound) => ({
      ...sound,
      interfaces: ["lo", "eth0"],
    }));
    expect(await o.project.run("w", { input: "secret" })).toMatchObject({ status: "refused", stdout: "" });
    expect(o.project.events.map(({ type }) => type)).not.toContain("output");
    expect(o.engine.containers.size).toBe(0);
  });

  it("whose input its schema does not allow", async () => {
    const schema = { type: "object", required: ["a"] };
    await using o = await opened({ workers: { w: worker("cat", { input_schema: schema }) } });
    expect(await o.project.run("w", { input: {} })).toMatchObject({ status: "refused", stdout: "" });
    expect(await o.project.run("w", { input: { a: 1 } })).toMatchObject({ status: "succeeded" });
  });
});

describe("a run is ended", () => {
  it("at its time, by SIGKILL if it ignores SIGTERM", async () => {
    await using o = await opened({ workers: { w: worker("stubborn", { limits: { timeout: "200ms" } }) } });
    expect(await o.project.run("w")).toMatchObject({ status: "timed_out", exitCode: null, signal: "SIGKILL" });
    expect(await o.project.traces()).toEqual([]);
  });

  it("at its time, with what it did about that", async () => {
    await using o = await opened({ workers: { w: worker("polite", { limits: { timeout: "200ms" } }) } });
    expect(await o.project.run("w")).toMatchObject({ status: "timed_out", exitCode: 7, stdout: "bye\n" });
  });

  it("when it is cancelled, wherever it is", async () => {
    await using o = await opened({ workers: { w: worker("sleeps") } });
    const before = await o.project.run("w", { signal: AbortSignal.abort() });
    expect(before).toMatchObject({ status: "cancelled", error: { code: "CANCELLED" } });
    const stop = new AbortController();
    const running = o.project.run("w", { signal: stop.signal });
    await o.project.printed("w", "up");
    stop.abort();
    expect(await running).toMatchObject({ status: "cancelled", exitCode: null, stdout: "up\n" });
    expect(await o.project.traces()).toEqual([]);
  });

  it("when it prints more than it may, and keeps what it may", async () => {
    await using o = await opened({ workers: { w: worker("floods", { limits: { output: "64k" } }) } });
    const result = await o.project.run("w");
    expect(result).toMatchObject({ status: "output_limit", truncated: true });
    expect(result.stdout).toBe("x".repeat(65_536));
  });
});

it("runs at once each have their own input and output, and leave nothing", async () => {
  await using o = await opened({ workers: { w: worker("cat") } });
  const results = await Promise.all(Array.from({ length: 20 }, (_, n) => o.project.run("w", { input: n })));
  expect(results.map(({ stdout }) => stdout)).toEqual(results.map((_, n) => `${n}\n`));
  expect(new Set(results.map(({ run }) => run)).size).toBe(20);
  expect(await o.project.traces()).toEqual([]);
});
