import { chmod, readdir } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openProject, type ProjectFixture, sh, writable } from "./project-fixture.ts";
import { openSessionIn } from "./session/session-fixture.ts";

describe("the working directory", () => {
  let project: ProjectFixture;

  beforeAll(async () => {
    const docs = { name: "docs" };
    project = await openProject({
      workers: {
        silent: { command: sh("pwd; cat a.txt"), sandbox: { zones: [docs] } },
        elsewhere: { command: sh("pwd; cd out; ls"), sandbox: { zones: [writable("out")] } },
        own: {
          command: sh(
            "pwd; corral-call silent; corral-call reads --attach b.txt --allow-read sub; corral-call home --attach '~/h'",
          ),
          sandbox: { zones: [docs, { name: "out" }, { name: "home" }], working_dir: "/out" },
          calls: ["silent", "reads", "home"],
        },
        reads: { command: sh("pwd; ls -d /out/*; cat /attachments/b.txt"), sandbox: { zones: [{ name: "out" }] } },
        narrow: { command: sh("corral-call moved --allow-read /out"), sandbox: { inherit: true }, calls: ["moved"] },
        moved: {
          command: sh(
            `pwd; curl -s --unix-socket "$CORRAL_SOCKET" -d '{"path":"out/b.txt"}' http://corral/v1/tools/read_file | jq -r .text`,
          ),
          sandbox: { inherit: true, working_dir: "/docs" },
        },
        home: { command: sh("cat /attachments/h") },
      },
      zones: { docs: "ro", out: "rw", home: "ro" },
      files: { "docs/in/a.txt": "A\n", "out/b.txt": "B\n", "out/sub/c": "", "home/h": "H\n" },
      sandbox: { working_dir: "/docs/in" },
    });
  });

  afterAll(async () => {
    await project[Symbol.asyncDispose]();
  });

  it("is the project's for a worker that names none, where the worker sees that", async () => {
    expect((await project.run("silent")).stdout).toBe("/docs/in\nA\n");
    expect((await project.run("elsewhere")).stdout).toBe("/\nb.txt\nsub\n");
  });

  it("is no matter of who calls; what a caller names in a call begins at the caller's", async () => {
    const { stdout, calls } = await project.run("own");
    expect(calls.map(({ status }) => status)).toEqual(["succeeded", "succeeded", "succeeded"]);
    expect(stdout).toBe("/out\n/docs/in\nA\n/\n/out/sub\nB\nH\n");
  });

  it("is / for tools and commands where a caller has taken it away", async () => {
    expect((await project.run("narrow")).stdout).toBe("/\nB\n\n");
  });
});

describe("a working directory that cannot be entered", () => {
  it.each([
    ["is missing where the worker writes", "/out/new"],
    ["is missing where the worker reads", "/docs/new"],
    ["is a file", "/docs/a.txt"],
    ["is closed to the worker", "/docs/closed"],
  ])("refuses the run where it %s, and is not made", async (_, workingDir) => {
    const zones = [{ name: "docs" }, writable("out")];
    await using project = await openProject({
      workers: { w: { command: sh("pwd"), sandbox: { zones, working_dir: workingDir } } },
      zones: { docs: "ro", out: "rw" },
      files: { "docs/a.txt": "A\n", "docs/closed/b": "" },
    });
    await chmod(join(project.dir, "docs/closed"), 0);
    expect(await project.run("w")).toMatchObject({
      status: "refused",
      violations: [{ code: "WORKING_DIR_MISSING", path: workingDir }],
    });
    expect(await readdir(join(project.dir, "out"))).toEqual([]);
    expect(await project.traces()).toEqual([]);
  });

  it("is told to a command of a session, and is not made", async () => {
    await using s = await openSessionIn({
      workers: {
        w: {
          command: ["true"],
          sandbox: { zones: [writable("out")], working_dir: "/out/new" },
          shell_rules: { default: "pre_approved" },
        },
      },
      zones: { out: "rw" },
    });
    const refused = await s.exec("pwd");
    expect(refused).toMatchObject({ status: "failed", stderr: expect.stringContaining("/out/new: No such file") });
    expect(await readdir(join(s.project.dir, "out"))).toEqual([]);
    await s.tool("write_file", { path: "a.txt", content: "A\n" });
    expect(await s.exec("pwd; cat a.txt")).toMatchObject({ stdout: "/out/new\nA\n" });
  });
});

describe("a namespace with a root", () => {
  it("begins for commands where it begins for tools, also where only a part of it is seen", async () => {
    const worker = { command: ["true"], sandbox: { allow_read: ["/src"] }, shell_rules: { default: "pre_approved" } };
    await using s = await openSessionIn({
      workers: { w: worker },
      files: { "src/a.txt": "A\n" },
      sandbox: { root: { root: "." }, mode: undefined, zones: undefined },
    });
    expect(await s.tool("read_file", { path: "src/a.txt" })).toMatchObject({ ok: true, text: "A\n" });
    expect(await s.exec("pwd; cat src/a.txt")).toMatchObject({ stdout: "/project\nA\n", exitCode: 0 });
  });
});
