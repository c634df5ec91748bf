import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type CliProject, cliProject, sh } from "./cli-project.ts";

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" }, docs: { path: "docs", mode: "ro" } } },
    },
    workers: {
      top: {
        command: sh("true"),
        calls: ["narrow", "greedy"],
        sandbox: { zones: [{ name: "docs" }, { name: "out", mode: "rw", approval: "pre_approved" }] },
      },
      narrow: { command: sh("true"), sandbox: { allow_read: ["/docs"] } },
      greedy: { command: sh("true"), sandbox: { zones: [{ name: "docs", mode: "rw" }] }, limits: { memory: "1g" } },
    },
    folders: ["out"],
    files: { "docs/a.txt": "a" },
  });
});

afterAll(async () => {
  await project[Symbol.asyncDispose]();
});

const NO_ENGINE = { DOCKER_HOST: "unix:///nowhere/engine.sock" };

describe("corral explain", () => {
  it("draws each run with what it has, and who took away the rest", async () => {
    const { status, stdout } = await project.corral(["explain", "top"]);
    expect(stdout).toMatch(new RegExp(`/docs ro +${project.dir}/docs`));
    expect(stdout).toMatch(new RegExp(`/out +rw +${project.dir}/out +write and delete pre_approved`));
    expect(stdout).toContain("/out rw → none by narrow");
    expect(stdout).toContain("└─ narrow");
    expect(stdout).toContain("├─ greedy would be refused");
    expect(stdout).toContain("`memory: 1 GiB` is more than the limit of 256 MiB (set by policy untrusted)");
    expect(stdout).toContain("user       65532:65532");
    expect(status).toBe(0);
  });

  it("ends with 1 if the worker itself would be refused", async () => {
    const { status, stdout } = await project.corral(["explain", "greedy"], { env: NO_ENGINE });
    expect(stdout).toMatch(/^greedy would be refused/);
    expect(status).toBe(1);
  });

  it("tells where writes go that do not go to the directory at once", async () => {
    const out = { name: "out", mode: "rw", approval: "pre_approved" };
    await using sides = await cliProject({
      yaml: { version: 1, sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" } } } },
      workers: {
        stages: { command: ["true"], sandbox: { zones: [{ ...out, stage: true }] } },
        discards: { command: ["true"], sandbox: { zones: [out], discard: true } },
      },
      folders: ["out"],
    });
    expect((await sides.corral(["explain", "stages"])).stdout).toMatch(
      /\/out rw .* write and delete pre_approved {2}staged\n/,
    );
    expect((await sides.corral(["explain", "discards"])).stdout).toMatch(
      /write and delete pre_approved {2}discarded\n/,
    );
  });

  it("prints the same as JSON", async () => {
    const { worker, tree } = JSON.parse((await project.corral(["explain", "top", "--json"])).stdout);
    expect(worker).toBe("top");
    expect(tree.plan.mounts.map((mount: { path: string; mode: string }) => `${mount.path} ${mount.mode}`)).toEqual([
      "/docs ro",
      "/out rw",
      "/.corral/busybox ro",
      "/.corral/socket ro",
    ]);
    expect(tree.calls.map((call: { path: string[] }) => call.path.join(" > "))).toEqual([
      "top > greedy",
      "top > narrow",
    ]);
  });

  it("shows sandboxes and refusals without an Engine, and says why there are no plans", async () => {
    const { status, stdout } = await project.corral(["explain", "top", "--json"], { env: NO_ENGINE });
    const { tree, notes } = JSON.parse(stdout);
    expect(tree.sandbox.mounts).toHaveLength(2);
    expect(tree.plan).toBeNull();
    expect(tree.refused).toBeNull();
    expect(tree.calls[0].refused).toHaveLength(2);
    expect(notes.join()).toContain("/nowhere/engine.sock");
    expect(status).toBe(0);
  });
});

describe("corral check", () => {
  it("finds the call paths that would be refused, and ends with 1", async () => {
    const { status, stdout } = await project.corral(["check"]);
    expect(stdout).toContain("refused top > greedy\n  - '/docs' is read-only");
    expect(stdout).toContain("refused greedy\n");
    expect(stdout).toContain("3 workers, 5 call paths: 2 would not run");
    expect(status).toBe(1);
  });

  it("names mistakes in files with their places", async () => {
    const broken = join(project.dir, "broken");
    await mkdir(broken);
    await writeFile(join(broken, "corral.yaml"), "version: 1\nsandbx: {}\n");
    const { status, stdout } = await project.corral(["check", "--project", "broken"]);
    expect(stdout).toContain("broken/corral.yaml:2:1:");
    expect(stdout).toContain("did you mean `sandbox`?");
    expect(status).toBe(1);
    const run = await project.corral(["run", "top", "--project", "broken"]);
    expect(run.stderr).toContain("broken/corral.yaml:2:1:");
    expect(run.status).toBe(2);
  });

  it("names no place in a folder that does not exist", async () => {
    const { status, stdout } = await project.corral(["check", "--project", "nowhere"]);
    expect(stdout).toMatch(/^nowhere: the project's folder does not exist\n/);
    expect(status).toBe(1);
  });

  it("finds the project from a folder below it, and other files from the working directory", async () => {
    const below = { cwd: "docs" };
    const [checked, run] = await Promise.all([
      project.corral(["check", "--json"], below),
      project.corral(["run", "top", "--input", "@corral.yaml"], { ...below, env: NO_ENGINE }),
    ]);
    expect(JSON.parse(checked.stdout)).toMatchObject({ workers: 3, paths: 5 });
    expect(run).toMatchObject({ status: 2, stderr: expect.stringContaining("corral.yaml") });
    expect(run.stderr).toMatch(/does not exist|ENOENT|no such file|cannot be read/i);
  });

  it("ends with 0 where every path would run", async () => {
    const sound = join(project.dir, "sound");
    await mkdir(join(sound, "workers"), { recursive: true });
    await writeFile(join(sound, "corral.yaml"), "version: 1\n");
    await writeFile(join(sound, "workers/one.worker"), "---\ncommand: [id]\n---\n");
    const { status, stdout } = await project.corral(["check", "--project", "sound", "--json"]);
    expect(JSON.parse(stdout)).toMatchObject({ ok: true, failing: [], problems: [], warnings: [], paths: 1 });
    expect(status).toBe(0);
  });

  it("says so where there is no worker to check: it may be the wrong folder", async () => {
    await mkdir(join(project.dir, "empty"));
    const { status, stdout } = await project.corral(["check", "--project", "empty"]);
    expect(stdout).toBe(`Nothing to check: there are no workers in ${project.dir}/empty.\n`);
    expect(status).toBe(0);
  });
});

describe("the verbs that only look after the machine", () => {
  it("ps and reap tell that there is nothing, as text on standard error and as JSON", async () => {
    const [ps, psJson, reap, reapJson] = await Promise.all(
      [["ps"], ["ps", "--json"], ["reap"], ["reap", "--json"]].map((args) => project.corral(args)),
    );
    expect(ps).toMatchObject({ status: 0, stdout: "", stderr: "There are no containers.\n" });
    expect(psJson).toMatchObject({ status: 0, stdout: "[]\n", stderr: "" });
    expect(reap).toMatchObject({ status: 0, stdout: "" });
    expect(reapJson).toMatchObject({ status: 0 });
    expect(JSON.parse(reapJson?.stdout ?? "")).toMatchObject({ cells: [], volumes: [] });
  });

  it("images ls and images build know the images, and refuse names that are none", async () => {
    const listed = JSON.parse((await project.corral(["images", "ls", "--json"])).stdout);
    expect(listed.map(({ tag }: { tag: string }) => tag)).toContain("corral/base");
    const wrong = await project.corral(["images", "build", "pyton"]);
    expect(wrong.stderr).toContain("did you mean `python`?");
    expect(wrong.status).toBe(2);
  });

  it("doctor finds the Engine, the images and the gate", async () => {
    const { status, stdout } = await project.corral(["doctor", "--json"]);
    const { ok, findings } = JSON.parse(stdout) as { ok: boolean; findings: { what: string; state: string }[] };
    expect(findings.filter(({ state }) => state === "missing")).toEqual([]);
    expect(new Set(findings.map(({ what }) => what))).toEqual(
      new Set([
        "corral",
        "disk",
        "packages",
        "user",
        "socket path",
        "allow lists",
        "overlays",
        "engine",
        "driver",
        "state directory",
        "image",
        "gate",
      ]),
    );
    expect(ok).toBe(true);
    expect(status).toBe(0);
  });
});

describe("without an Engine", () => {
  it.each([["run", "top"], ["ps"], ["reap"], ["images", "ls"]])(
    "%s %s ends with 125 and says what to do",
    async (...args) => {
      const { status, stderr } = await project.corral(args.filter(Boolean), { env: NO_ENGINE });
      expect(stderr).toContain("the socket does not exist");
      expect(stderr).toContain("DOCKER_HOST");
      expect(status).toBe(125);
    },
  );

  it("doctor says what is missing, and ends with 1", async () => {
    const { status, stdout } = await project.corral(["doctor"], { env: NO_ENGINE });
    expect(stdout).toContain("✗ engine");
    expect(status).toBe(1);
  });

  it("check still checks what is declared, and warns", async () => {
    const { status, stdout } = await project.corral(["check"], { env: NO_ENGINE });
    expect(stdout).toContain("warning Images were not checked.");
    expect(stdout).toContain("refused top > greedy");
    expect(status).toBe(1);
  });
});
