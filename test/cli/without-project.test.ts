import { spawnSync } from "node:child_process";
import { chmod, lstat, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { RunResult } from "../../src/run/model/result.ts";
import { type CliProject, cliProject } from "./cli-project.ts";
import { PROGRAM } from "./program.ts";

let folder: CliProject;

beforeAll(async () => {
  const files = { "inbox/a.txt": "a letter\n", "one.txt": "one file\n" };
  folder = await cliProject({ yaml: null, workers: {}, files });
});
afterAll(async () => {
  await folder[Symbol.asyncDispose]();
});
beforeEach(async () => {
  for (const name of ["out", "corral.yaml", "workers", "far"])
    await rm(join(folder.dir, name), { recursive: true, force: true });
});

const here = (path: string) => join(folder.dir, path);
const run = (...args: string[]) => folder.corral(["run", ...args]);
const copies = ["--ro", "inbox", "--rw", "out", "--", "cp", "/inbox/a.txt", "/out/b.txt"];

describe("a command without a project", () => {
  it("reads what --ro shows, keeps both streams and its exit status, and sees nothing else", async () => {
    const { status, stdout, stderr } = await run(
      ...["--ro", "inbox", "--ro", "one.txt=single", "--", "sh", "-c"],
      "cat /inbox/a.txt /single; ls -d /work /out; id -u; echo no > /inbox/x; exit 7",
    );
    expect(stdout).toBe("a letter\none file\n65532\n");
    expect(stderr).toMatch(/'\/out': No such file.*cannot create \/inbox\/x/s);
    expect(status).toBe(7);
  });

  it("takes input, attachments and --json as a worker does, and its words are in the audit trail", async () => {
    const args = ["--input", '{"n":1}', "--attach", "one.txt=x", "--json", "--", "sh", "-c", "cat; cat /attachments/x"];
    const { stdout } = await run(...args);
    const result = JSON.parse(stdout) as RunResult;
    expect(result).toMatchObject({ worker: "sh", status: "succeeded", stdout: '{"n":1}\none file\n' });
    const trail = await folder.corral(["audit", "--run", result.run, "--type", "run_requested", "--json"]);
    expect(JSON.parse(trail.stdout)).toMatchObject({ arguments: ["sh", "-c", "cat; cat /attachments/x"] });
  });

  it("has the limits, variables, folder and name that are said", async () => {
    await mkdir(here("My Documents (1)"));
    const { status, stdout, stderr } = await run(
      ...["--ro", "My Documents (1)", "--workdir", "/My Documents (1)", "--env", "A=b c", "--name", "reader"],
      ...["--timeout", "2s", "--pids", "20", "--memory", "100m", "--", "sh", "-c", 'pwd; echo "$A"; sleep 60'],
    );
    expect(stdout).toBe("/My Documents (1)\nb c\n");
    expect(stderr).toMatch(/reader.* 2s/);
    expect(status).toBe(124);
    const more = await run("--memory", "3g", "--", "true");
    expect(more).toMatchObject({ status: 126, stderr: expect.stringContaining("Ask for at most 2 GiB") });
    expect(await run("--cpus", "x", "--", "true")).toMatchObject({
      status: 2,
      stderr: expect.stringMatching(/^corral: --cpus x: must be/),
    });
  });

  it("is told in words what cannot be run, and where links lead", async () => {
    await writeFile(here("script"), "#!/bin/sh\necho hi\n");
    await mkdir(here("links"), { recursive: true });
    await rm(here("links/away"), { force: true });
    await symlink("/etc/hostname", here("links/away"));
    const { status, stderr } = await run("--ro", "script", "--ro", "links", "--", "/script");
    expect(stderr).toMatch(/a link leads out of .*links .*: away\n.*cannot be executed: a script needs `chmod \+x`/s);
    expect(status).toBe(126);
    const absent = await run("--", "sh", "-c", "make");
    expect(absent).toMatchObject({
      status: 127,
      stderr: expect.stringContaining("the image has no make: take another one"),
    });
    expect(await run("--", "make")).toMatchObject({ status: 126, stderr: expect.stringContaining("`--apt PACKAGE`") });
  });

  it("says of a pattern that the shell has taken apart that it is to be quoted", async () => {
    const { status, stderr } = await folder.corral(["map", "w", "--over", "a.pdf", "b.pdf"]);
    expect([status, stderr]).toEqual([2, expect.stringContaining("a pattern is quoted: --over 'inbox/*.pdf'")]);
  });

  it.each([
    ["in a working directory that is gone", (run: string) => `mkdir gone; cd gone; rmdir ../gone; ${run}`, 2],
    ["where HOME takes no folders", (run: string) => `unset CORRAL_STATE_DIR XDG_STATE_HOME; HOME=/proc ${run}`, 125],
  ])("ends at once, in words, %s", async (_, script, wanted) => {
    const command = script(`${process.execPath} ${PROGRAM} run -- true`);
    const { status, stderr } = spawnSync("sh", ["-c", command], { cwd: folder.dir, encoding: "utf8", timeout: 20_000 });
    expect(stderr).toMatch(/^corral: the (working|state) directory .*(was removed|cannot be created)[^\n]*\n$/);
    expect(status).toBe(wanted);
  });

  it("changes nothing without consent: what it wrote waits, and one command applies it", async () => {
    const { status, stderr } = await run(...copies);
    expect(status).toBe(126);
    expect(await readdir(here("out"))).toEqual([]);
    const [, way = ""] = /review and apply it with `corral (changes apply [0-9a-f]{12})`/.exec(stderr) ?? [];
    expect(await folder.corral([...way.split(" "), "--yes"])).toMatchObject({ status: 0 });
    expect(await readFile(here("out/b.txt"), "utf8")).toBe("a letter\n");
  });

  it("applies with --apply, except a corral.yaml", async () => {
    expect(await run("--apply", ...copies)).toMatchObject({ status: 0, stderr: "corral: changes: 1 applied\n" });
    expect(await readdir(here("out"))).toEqual(["b.txt"]);
    const plants = "echo x > /out/corral.yaml; mkdir /out/deep; echo y > /out/deep/y";
    const planted = await run("--apply", "--rw", "out", "--", "sh", "-c", plants);
    expect(planted.stderr).toContain("a corral.yaml says what the next run may do");
    expect(await readdir(here("out"), { recursive: true })).toEqual(["b.txt", "deep", "deep/y"]);
  });

  it.runIf(process.getuid?.() === 0)("reads and changes root's private files, which stay root's", async () => {
    await mkdir(here("out"));
    await chmod(here("out"), 0o700);
    await writeFile(here("out/kept"), "private\n", { mode: 0o600 });
    await chmod(here("one.txt"), 0o600);
    const script =
      "id -u; cat /one /out/kept /attachments/a; echo more >> /out/kept; mkdir /out/new; echo x > /out/new/x";
    const args = ["--apply", "--ro", "one.txt=one", "--rw", "out", "--attach", "one.txt=a", "--", "sh", "-c", script];
    const { stdout, status } = await run(...args);
    expect(stdout).toBe("65532\none file\nprivate\none file\n");
    expect(status).toBe(0);
    expect(await readFile(here("out/kept"), "utf8")).toBe("private\nmore\n");
    for (const [path, mode] of [
      ["out/kept", 0o600],
      ["out/new", 0o755],
      ["out/new/x", 0o644],
    ] as const)
      expect(await lstat(here(path)), path).toMatchObject({
        uid: 0,
        gid: 0,
        mode: expect.toSatisfy((all) => (all & 0o777) === mode),
      });
    const { stdout: explained } = await folder.corral(["explain", "--rw", "out", "--", "ls"]);
    expect(explained).toMatch(/user +65532:65532/);
    expect(explained).toContain("The worker gets a copy of /out");
    await chmod(here("one.txt"), 0o644);
  });

  it("changes a single file that --rw names", async () => {
    const { status, stdout } = await run("--apply", "--rw", "one.txt=f", "--", "sh", "-c", "cat /f; echo more >> /f");
    expect([status, stdout]).toEqual([0, "one file\n"]);
    expect(await readFile(here("one.txt"), "utf8")).toBe("one file\nmore\n");
    await writeFile(here("one.txt"), "one file\n");
  });

  it("is explained without making anything: neither its folder nor the state directory", async () => {
    const state = here("far/state");
    const explained = await folder.corral(["explain", ...copies], { env: { CORRAL_STATE_DIR: state } });
    expect(explained).toMatchObject({ status: 0, stderr: "" });
    expect(explained.stdout).toMatch(/\/out +rw .*staged/);
    expect(explained.stdout).toContain("The folder of /out does not exist yet: the first run makes it.");
    await expect(lstat(here("out"))).rejects.toThrow("ENOENT");
    await expect(lstat(here("far"))).rejects.toThrow("ENOENT");
  });

  it("needs another policy for a network, and says which", async () => {
    const refused = await run("--allow", "files.example.org:443", "--", "true");
    expect(refused.status).toBe(126);
    expect(refused.stderr).toContain("the policy untrusted allows no network");
    expect(refused.stderr).toContain("--policy default");
    const shown = await folder.corral([
      "explain",
      "--allow",
      "files.example.org:443",
      "--policy",
      "default",
      "--json",
      "--",
      "true",
    ]);
    expect(JSON.parse(shown.stdout).tree.sandbox.network.allow).toMatchObject([{ to: "files.example.org:443" }]);
    expect((await run("--allow", "nonsense", "--", "true")).stderr).toMatch(/^corral: --allow nonsense: .*port.*\n$/);
    const advice = "write `--allow localhost:80=127.0.0.1/32,::1/128`\n";
    expect((await run("--allow", "localhost:80", "--", "true")).stderr).toContain(advice);
    const wrong = await run("--allow", "localhost:80=here", "--", "true");
    expect(wrong.stderr).toMatch(/^corral: --allow localhost:80=here: .*\n$/);
  });

  it("runs beside others like it in the same folder", async () => {
    const one = (name: string) => run("--apply", "--rw", `${name}`, "--", "sh", "-c", `echo ${name} > /${name}/x`);
    const both = await Promise.all([one("out"), one("far")]);
    expect(both.map(({ status }) => status)).toEqual([0, 0]);
    expect([await readFile(here("out/x"), "utf8"), await readFile(here("far/x"), "utf8")]).toEqual(["out\n", "far\n"]);
  });

  it("is a file of a project with --save, which then does the same", async () => {
    const saved = await run("--save", "copy", "--apply", ...copies);
    expect(saved.stderr).toContain(
      "corral: wrote corral.yaml and workers/copy.worker; `corral run copy` does the same\n",
    );
    expect(saved.status).toBe(0);
    for (const file of ["corral.yaml", "workers/copy.worker"])
      expect((await lstat(here(file))).mode & 0o777).toBe(0o644);
    await rm(here("out/b.txt"));
    expect(await folder.corral(["run", "copy"])).toMatchObject({ status: 0 });
    expect(await readFile(here("out/b.txt"), "utf8")).toBe("a letter\n");
    expect(await folder.corral(["check"])).toMatchObject({ status: 0 });
    expect((await run("--save", "copy", "--", "true")).stderr).toContain("--save overwrites nothing, and corral.yaml");
  });

  it("saves nothing that cannot run, and names no command that needs a project", async () => {
    expect(await run("--policy", "nope", "--save", "copy", ...copies)).toMatchObject({
      status: 2,
      stdout: "",
      stderr: expect.stringMatching(/^corral: There is no policy `nope`/),
    });
    expect(await readdir(folder.dir)).not.toContain("corral.yaml");
    const { status, stderr } = await run("--image", "corral/base", "--pip", "lxml", "--", "true");
    expect([status, stderr]).toEqual([126, expect.stringMatching(/the image has no python3.* run it again\.$/m)]);
    expect(stderr).not.toContain("images build");
  });

  it("may ask for other folders with --dynamic", async () => {
    await mkdir(here("far"));
    await writeFile(here("far/b.txt"), "b\n");
    const read = async (...more: string[]) =>
      await folder.corral(["tool", "--ro", "inbox", ...more, "read_file", JSON.stringify({ path: here("far/b.txt") })]);
    expect((await read()).stderr + (await read()).stdout).toContain("outside what this worker can see");
    const asked = await read("--dynamic");
    expect([asked.status, asked.stderr + asked.stdout]).toEqual([
      126,
      expect.stringContaining("there is no terminal for the question"),
    ]);
    expect((await read("--dynamic", "--apply")).status, "which approves no grant").toBe(126);
  });

  it("does not save through a link, nor a part of it", async () => {
    await mkdir(here("far"));
    await symlink("far", here("workers"));
    const refused = await run("--save", "copy", "--", "true");
    expect(refused).toMatchObject({ status: 2, stdout: "" });
    expect(refused.stderr).toContain("workers/copy.worker already exists");
    expect(await readdir(here("far"))).toEqual([]);
    await expect(lstat(here("corral.yaml"))).rejects.toThrow("ENOENT");
    await symlink("far/corral.yaml", here("corral.yaml"));
    expect((await run("--save", "copy", "--", "true")).stderr).toContain("corral.yaml already exists");
    expect(await readdir(here("far"))).toEqual([]);
  });

  it("does not save a project whose worker could change it", async () => {
    expect((await run("--save", "copy", "--rw", ".=all", "--", "true")).stderr).toContain("/all has them");
    await expect(lstat(here("corral.yaml"))).rejects.toThrow("ENOENT");
    await writeFile(here("corral.yaml"), "version: 1\n");
    const beside = await run("--rw", ".=all", "--", "true");
    expect([beside.status, beside.stderr]).toEqual([126, expect.stringContaining("the project's own corral.yaml")]);
  });
});

describe("a session without a project", () => {
  it("is a shell or a tool with the same options; docs/mcp.md has one for a client", async () => {
    const shell = await folder.corral(["shell", "--ro", "inbox"], { stdin: "cat /inbox/a.txt; exit 3" });
    expect(shell).toMatchObject({ status: 3, stdout: "a letter\n" });
    const tool = await folder.corral(["tool", "read_file", '{"path": "/inbox/a.txt"}', "--ro", "inbox"]);
    expect(tool).toMatchObject({ status: 0, stdout: expect.stringContaining("a letter") });
    const exec = await folder.corral(["tool", "exec", '{"command": "cat /inbox/a.txt"}', "--ro", "inbox"]);
    expect(exec).toMatchObject({ status: 0, stdout: expect.stringContaining("a letter") });
  });
});
