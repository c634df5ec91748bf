import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { loadProject } from "../../../src/declarations/project.ts";
import { check } from "../../../src/run/explain/check.ts";
import { explain } from "../../../src/run/explain/explain.ts";
import { openPreview } from "../../../src/run/open/preview.ts";
import { type ProjectSpec, sh, WORKER_UID, writable, writeProject } from "../project-fixture.ts";

let base: string;

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), "cr-"));
});

afterEach(async () => {
  await rm(base, { recursive: true, force: true });
});

interface CheckedWith {
  readonly maxPaths?: number;
  readonly engineEnv?: Readonly<Record<string, string | undefined>>;
  readonly approvalMode?: "auto_deny";
}

async function checked(spec: ProjectSpec, { maxPaths, engineEnv = process.env, ...options }: CheckedWith = {}) {
  const dir = join(base, "p");
  writeProject(dir, spec);
  const project = await loadProject(dir);
  return await check(await openPreview(project, { stateDir: join(base, "s"), engineEnv, ...options }), maxPaths);
}

const command = sh("true");
const docs = { name: "docs" };

describe("check", () => {
  it("finds nothing where every path would run, whatever must be asked for", async () => {
    const report = await checked({
      workers: {
        top: { command, calls: ["low"], sandbox: { zones: [{ name: "out", mode: "rw" }, docs] } },
        low: { command, sandbox: { zones: [docs] } },
      },
      zones: { out: "rw", docs: "ro" },
    });
    expect(report).toMatchObject({
      ok: true,
      problems: [],
      failing: [],
      warnings: [],
      workers: 2,
      paths: 3,
      cut: false,
      inherits: {},
    });
  });

  it("reports what a worker's file says without effect, at its place", async () => {
    const own = { require_os_sandbox: false };
    const strict = { require_os_sandbox: true };
    const report = await checked({ workers: { w: { command, sandbox: own }, s: { command, sandbox: strict } } });
    expect(report).toMatchObject({ ok: true, failing: [] });
    expect(report.warnings).toEqual([
      expect.stringMatching(/w\.worker:2:\d+: sandbox\.require_os_sandbox: `false` has no effect: Corral runs/),
    ]);
  });

  it("finds no fault in a staged folder that the first run makes, of a called worker either", async () => {
    const sandbox = { paths: { out: { root: "./out", mode: "rw", create: true, stage: true } } };
    const own = { zones: [{ name: "out", mode: "rw", approval: "pre_approved" }] };
    const workers = { a: { command, sandbox: own, calls: ["b"] }, b: { command, sandbox: own } };
    expect(await checked({ workers, yaml: { sandbox } })).toMatchObject({ ok: true, failing: [], paths: 3 });
  });

  it("makes nothing, neither in the project nor of Corral's own, and neither does explain", async () => {
    const sandbox = { mode: "sandboxed", zones: { cache: { mode: "rw", path: "./deep/c" } } };
    const workers = { w: { command, sandbox: { zones: [{ name: "cache", mode: "rw" }] } } };
    expect(await checked({ workers, yaml: { sandbox } })).toMatchObject({ ok: true, paths: 1 });

    const project = await loadProject(join(base, "p"));
    const preview = await openPreview(project, { stateDir: join(base, "s"), engineEnv: process.env });
    const worker = project.workers.get("w");
    if (worker === undefined) throw new Error("no worker");
    const { tree } = await explain(worker, null, preview);
    expect(tree).toMatchObject({ refused: null, plan: { user: { uid: WORKER_UID, gid: WORKER_UID } } });
    expect(tree.notes).toContain("The folder of /cache does not exist yet: the first run makes it.");
    expect((await readdir(base, { recursive: true })).toSorted()).toEqual([
      "p",
      "p/corral.yaml",
      "p/workers",
      "p/workers/w.worker",
    ]);
  });

  it("finds scripts that cannot play a model's part, and warns of keys that are not there", async () => {
    const spec = {
      workers: {
        played: { model: "script/s.yaml" },
        broken: { model: "script/broken.yaml" },
        missing: { model: "script/nowhere.yaml" },
        asked: { model: "openai/m" },
      },
      files: { "s.yaml": "- say: x", "broken.yaml": "- sya: x" },
    };
    const without = await checked(spec, { engineEnv: { ...process.env, OPENAI_API_KEY: undefined } });
    expect(without).toMatchObject({
      ok: false,
      problems: [expect.stringContaining("unknown key `sya`, did you mean `say`?")],
      warnings: [
        "There is no script nowhere.yaml, which plays the model of worker missing.",
        "The environment variable OPENAI_API_KEY is not set. Workers that need its key: asked.",
      ],
    });
    const { warnings } = await checked(spec, { engineEnv: { ...process.env, OPENAI_API_KEY: "k" } });
    expect(warnings).toEqual(["There is no script nowhere.yaml, which plays the model of worker missing."]);
  });

  it("finds what is refused only at the end of one call path, with every reason", async () => {
    const { ok, failing } = await checked({
      workers: {
        strong: { command, calls: ["low"], sandbox: { zones: [writable("out"), docs] } },
        weak: { command, calls: ["low"], sandbox: { zones: [docs] }, limits: { pids: 10 } },
        low: { command, sandbox: { zones: [writable("out")] }, limits: { pids: 20 } },
      },
      zones: { out: "rw", docs: "ro" },
    });
    expect(ok).toBe(false);
    expect(failing.map(({ path, violations }) => [path.join(" > "), violations.map(({ code }) => code)])).toEqual([
      ["weak > low", ["MOUNT_NOT_AVAILABLE", "LIMIT_TOO_LARGE"]],
    ]);
  });

  it("finds cycles", async () => {
    const { failing } = await checked({
      workers: { one: { command, calls: ["two"] }, two: { command, calls: ["one"] } },
    });
    expect(failing.map(({ path }) => path.join(" > "))).toEqual(["one > two > one", "two > one > two"]);
  });

  it("finds what no container can be made of, with and without an Engine", async () => {
    const spec: ProjectSpec = {
      workers: {
        reads: { command, sandbox: { zones: [{ name: "notes" }] } },
        system: { command, sandbox: { zones: [{ name: "host" }] } },
      },
      zones: { docs: "ro" },
      sandbox: { zones: { notes: { path: "./docs" }, host: { path: "/etc" } } },
    };
    const engineEnv = { DOCKER_HOST: "unix:///nowhere/engine.sock" };
    for (const options of [{}, { engineEnv }]) {
      const { failing, warnings } = await checked(spec, options);
      expect(failing.flatMap(({ violations }) => violations.map(({ code }) => code))).toEqual(["MOUNT_SOURCE_REFUSED"]);
      expect(warnings).toHaveLength("engineEnv" in options ? 1 : 0);
    }
  });

  it("fails for images that the Engine does not have, and says how to get them", async () => {
    const { ok, failing } = await checked({
      workers: { a: { command, image: "nobody/nothing", calls: ["b"] }, b: { command, image: "corral/pyton" } },
    });
    expect(ok).toBe(false);
    expect(failing.map(({ path, message }) => [path.join(" > "), message])).toEqual([
      ["a", expect.stringContaining("`corral images pull nobody/nothing` prints what to write")],
      ["a > b", expect.stringContaining("It has corral/base, corral/documents, corral/node, corral/python.")],
      ["b", expect.stringContaining("It has corral/base, corral/documents, corral/node, corral/python.")],
    ]);
  });

  it("warns of images that the first run makes", async () => {
    const { ok, warnings } = await checked({
      workers: { a: { command, image: { build: "img" } } },
      files: { "img/Dockerfile": "FROM corral/base\nRUN echo never built\n" },
    });
    expect(ok).toBe(true);
    expect(warnings).toEqual([
      "img: it is not built yet. The first run does it, and so does `corral images build img`.",
    ]);
  });

  it("names policies that do not exist, with the files that name them", async () => {
    const { ok, problems, paths } = await checked({
      workers: { a: { command, policy: "untrustd" }, b: { command, policy: "mine" } },
      yaml: { policies: "workers" },
      files: { "workers/mine.yaml": "name: mine\nhardening: { seccomp: none }\n" },
    });
    expect(ok).toBe(false);
    expect(problems.some((problem) => /a\.worker: policy: .*did you mean `untrusted`/.test(problem))).toBe(true);
    expect(problems.some((problem) => /mine\.yaml:\d+:\d+: /.test(problem))).toBe(true);
    expect(paths).toBe(0);
  });

  it("counts what the project's approval mode would deny as a path that does not run", async () => {
    const { failing } = await checked(
      { workers: { a: { command, sandbox: { zones: [{ name: "out", mode: "rw" }] } } }, zones: { out: "rw" } },
      { approvalMode: "auto_deny" },
    );
    expect(failing).toMatchObject([{ path: ["a"], outcome: "denied" }]);
  });

  it("counts nothing as denied that a rule of the project may approve, whatever the mode", async () => {
    const workers = { a: { command, sandbox: { zones: [{ name: "out", mode: "rw" }] } } };
    const outcomes = async (rule: Readonly<Record<string, unknown>>) => {
      const yaml = { approval: { mode: "auto_deny", rules: [rule] } };
      return (await checked({ workers, zones: { out: "rw" }, yaml })).failing.map(({ outcome }) => outcome);
    };
    const approve = { operation: ["write", "delete"], paths: ["/out/text/**"], decide: "approve" };
    expect(await outcomes(approve)).toEqual([]);
    for (const other of [
      { ...approve, decide: "deny" },
      { ...approve, worker: "b" },
      { ...approve, paths: ["/elsewhere/**"] },
      { ...approve, operation: ["grant_write"] },
      { command: "ls", decide: "approve" },
    ])
      expect(await outcomes(other)).toEqual(["denied"]);
  });

  it("reads the project's fleets, and names what is wrong with their files", async () => {
    const files = {
      "fleets/good.yaml": "version: 1\nworker: a\nover: docs/*\n",
      "fleets/typo.yaml": "version: 1\nworker: a\novre: docs/*\n",
      "fleets/nobody.yaml": "version: 1\nworker: b\nover: docs/*\n",
      "fleets/weak.yaml": "version: 1\nworker: a\nover: docs/*\npolicy: bacth\n",
    };
    const { ok, problems } = await checked({ workers: { a: { command } }, files });
    expect(ok).toBe(false);
    expect(problems.filter((problem) => /typo\.yaml:3:1: .*`ovre`.*`over`/.test(problem))).toHaveLength(1);
    expect(problems.filter((problem) => /nobody\.yaml:2:\d+: .*no worker `b`/.test(problem))).toHaveLength(1);
    expect(problems.filter((problem) => /weak\.yaml: policy: .*did you mean `batch`/.test(problem))).toHaveLength(1);
    expect(problems.join()).not.toContain("good.yaml");
  });

  it("warns of folders to be granted in that hold nothing", async () => {
    const within = ["./docs", "./dosc", "corral.yaml"];
    const { ok, warnings } = await checked({
      workers: { a: { command, sandbox: { dynamic: { within } } } },
      zones: { docs: "ro" },
    });
    expect(ok).toBe(true);
    expect(warnings).toEqual([
      expect.stringMatching(
        /a\.worker: sandbox\.dynamic\.within: \.\/dosc does not exist; nothing can be granted there\.$/,
      ),
      expect.stringMatching(/: corral\.yaml is not a folder; nothing/),
    ]);
  });

  it("ends where calls branch without end, and says so", async () => {
    const names = Array.from({ length: 8 }, (_, index) => `w${index}`);
    const calls = (name: string) => names.filter((other) => other !== name);
    const workers = Object.fromEntries(names.map((name) => [name, { command, calls: calls(name) }]));
    const report = await checked({ workers, yaml: { delegation: { max_depth: 8 } } }, { maxPaths: 500 });
    expect(report).toMatchObject({ paths: 500, cut: true });
  });

  it("reads the project's own file of a policy before the package's", async () => {
    const { problems } = await checked({
      workers: { a: { command } },
      policy: "default",
      yaml: { policies: "own" },
      files: { "own/default.yaml": "name: other\n" },
    });
    expect(problems.join()).toContain("own/default.yaml:1:");
  });
});
