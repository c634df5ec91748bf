import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { outsideCell } from "../outside-cell.ts";
import { HANDY, openHandySession, openSessionIn, type SessionFixture } from "./session-fixture.ts";

let s: SessionFixture;

beforeAll(async () => {
  s = await openHandySession();
});

afterAll(async () => {
  await s[Symbol.asyncDispose]();
});

describe("a command in a session's cell", () => {
  it("keeps its own exit code and both of its streams apart", async () => {
    const answer = await s.exec("echo out; echo err >&2; exit 3");
    expect(answer).toMatchObject({ status: "failed", exitCode: 3, signal: null, stdout: "out\n", stderr: "err\n" });
    expect(answer).toMatchObject({ cut: false, cellReplaced: false, hints: [] });
  });

  it("gives each piece of output as it comes, before the command has ended", async () => {
    const never = new AbortController().signal;
    const { promise: first, resolve } = Promise.withResolvers<string>();
    const pieces: string[] = [];
    const ended = s.session.exec(
      { command: "echo one; until [ -e /out/go ]; do sleep 0.05; done; echo two >&2; exit 3" },
      never,
      (stream, chunk) => {
        pieces.push(`${stream}:${chunk}`);
        resolve(pieces.join());
      },
    );
    expect(await first).toBe("stdout:one\n");
    await s.tool("write_file", { path: "/out/go", content: "" });
    expect((await ended).exitCode).toBe(3);
    expect(pieces).toEqual(["stdout:one\n", "stderr:two\n"]);
  });

  it("reads the whole of its input, and then its end", async () => {
    const stdin = `${"ä".repeat(1_000_000)}\0end`;
    const { stdout } = await s.exec("wc -c; cat | wc -c", { stdin });
    expect(stdout).toBe("2000004\n0\n");
    expect((await s.exec("cat")).stdout).toBe("");
  });

  it("may end without reading its input, and loses nothing of its output", async () => {
    const { status, stdout } = await s.exec("head -c 1; seq 3000", { stdin: "x".repeat(3_000_000) });
    expect(stdout.endsWith("\n3000\n")).toBe(true);
    expect(status).toBe("succeeded");
  });

  it.each([
    [undefined, "/"],
    ["/out", "/out"],
    ["docs", "/docs"],
    ["out:", "/out"],
    ["/docs/../out", "/out"],
    ["/tmp", "/tmp"],
    ["/home/worker/.", "/home/worker"],
  ])("asked to run in %s runs in %s", async (cwd, place) => {
    const { stdout } = await s.exec("pwd", { cwd });
    expect(stdout).toBe(`${place}\n`);
  });

  it.each(["/etc", "/tmp/../etc", "/home", "../..", "/docs\0", "/data", "/tmpx", "/.corral", "~"])(
    "is refused to run in %j",
    async (cwd) => {
      const result = await s.tool("exec", { command: "true", cwd });
      expect(result).toMatchObject({ ok: false, code: "BAD_DIRECTORY" });
      if (!result.ok) expect(result.message).not.toContain(s.project.dir);
    },
  );

  it("fails in a directory that is gone, says so, and is told what there is", async () => {
    const answer = await s.exec("pwd", { cwd: "/out/gone" });
    expect(answer).toMatchObject({ status: "failed", exitCode: 126, stdout: "" });
    expect(answer.stderr).toBe("/out/gone: No such file or directory\n");
    expect(answer.hints.join()).toContain("Readable paths: /docs, /out.");
    const file = await s.exec("pwd", { cwd: "/docs/a.txt" });
    expect(file).toMatchObject({ exitCode: 126, stderr: "/docs/a.txt: Not a directory\n" });
  });

  it("sees the variables that it was given besides the cell's own, and nothing of how it was started", async () => {
    const { stdout } = await s.exec("env | cut -d= -f1 | sort", { env: { FOO: "a b\n'c'", _x1: "" } });
    const names = stdout
      .trim()
      .split("\n")
      .filter((name) => !name.startsWith("'"));
    const own = ["CORRAL_RUN", "CORRAL_SOCKET", "HOME", "HOSTNAME", "LANG", "PATH", "TMPDIR"];
    const shell = ["OLDPWD", "PWD", "SHLVL", "_"];
    expect(names.filter((name) => !shell.includes(name))).toEqual(expect.arrayContaining(["FOO", "_x1", ...own]));
    expect(names.filter((name) => ![...shell, ...own, "FOO", "_x1", "DEBIAN_FRONTEND"].includes(name))).toEqual([]);
    expect((await s.exec('printf %s "$FOO"', { env: { FOO: "a b\n'c'" } })).stdout).toBe("a b\n'c'");
  });

  it.each(["HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "CORRAL_SOCKET"])("cannot be given %s", async (name) => {
    const result = await s.tool("exec", { command: "true", env: { [name]: "/tmp" } });
    expect(result).toMatchObject({ ok: false, code: "BAD_ENVIRONMENT", message: expect.stringContaining(name) });
  });

  it.each(["", "1A", "A-B", "A=B", "A B", "Ä", "A\n"])("cannot be given a variable of the name %j", async (name) => {
    expect(await s.tool("exec", { command: "true", env: { [name]: "x" } })).toMatchObject({ code: "BAD_INPUT" });
    const refused = await s.exec("true", { env: { [name]: "x" } }).catch((error: { code: string }) => error.code);
    expect(refused).toBe("BAD_ENVIRONMENT");
  });

  it("may be as long as the kernel takes, and is refused in words beyond", async () => {
    const longest = "ä".repeat(65_529);
    const { status, stdout } = await s.exec(`echo ${longest} |wc -c`);
    expect([status, stdout]).toEqual(["succeeded", `${longest.length * 2 + 1}\n`]);
    const longer = await s.tool("exec", { command: `echo ${"ä".repeat(65_536)}` });
    expect(longer).toMatchObject({ ok: false, code: "COMMAND_TOO_LONG" });
    const value = "x".repeat(32_000);
    const env = Object.fromEntries(Array.from({ length: 60 }, (_, index) => [`A${index}`, value]));
    expect(await s.tool("exec", { command: "true", env })).toMatchObject({ ok: false, code: "BAD_ENVIRONMENT" });
    expect(await s.tool("exec", { command: "echo \0" })).toMatchObject({ ok: false, code: "BAD_INPUT" });
  });

  it("finds no program that is not there, and says which", async () => {
    const answer = await s.exec("no-such-program --x");
    expect(answer).toMatchObject({ status: "failed", exitCode: 127 });
    expect(answer.stderr).toContain("no-such-program");
    expect(answer.hints.join()).toContain("not installed in this worker's image");
  });

  it.each([
    ["SEGV", 139],
    ["TERM", 143],
    ["KILL", 137],
  ])("that dies by SIG%s is told by that signal, and by the code that says the same", async (name, exitCode) => {
    expect(await s.exec(`kill -${name} $$`)).toMatchObject({
      status: "signaled",
      exitCode,
      signal: `SIG${name}`,
      cellReplaced: false,
    });
  });

  it("closes its output and goes on: its end is still told right", async () => {
    expect(await s.exec("exec >&- 2>&-; sleep 0.5; exit 7")).toMatchObject({ status: "failed", exitCode: 7 });
  });

  it("leaves what it began in the background, and what it put into memory, for those after it", async () => {
    await s.exec("sleep 4711 > /dev/null 2>&1 & echo $! > /tmp/pid; echo kept > ~/kept");
    expect((await s.exec("kill -0 $(cat /tmp/pid) && cat ~/kept")).stdout).toBe("kept\n");
    expect(await s.processes()).toEqual(["sleep 4711"]);
    await s.exec("kill $(cat /tmp/pid)");
  });

  it("runs beside others: each waits until the others are there", async () => {
    const command = (n: number) =>
      `: > /tmp/beside-${n}; until [ -e /tmp/beside-1 -a -e /tmp/beside-2 -a -e /tmp/beside-3 ]; do sleep 0.05; done; echo ${n}`;
    const answers = await Promise.all([1, 2, 3].map((n) => s.exec(command(n), { timeoutMs: 30_000 })));
    expect(answers.map(({ stdout }) => stdout)).toEqual(["1\n", "2\n", "3\n"]);
  });

  it("is over at once where it is cancelled, and the one beside it goes on", async () => {
    const first = s.exec("echo > /out/begun; until [ -e /out/first-ends ]; do sleep 0.1; done; echo first");
    await expect.poll(() => existsSync(join(s.project.dir, "out/begun"))).toBe(true);
    const stop = new AbortController();
    const second = s.exec("sleep 60; echo > /out/second", {}, stop.signal);
    setTimeout(() => stop.abort(new Error("enough")), 300);
    expect(await second).toMatchObject({ status: "cancelled", cellReplaced: false });
    await s.tool("write_file", { path: "/out/first-ends", content: "" });
    expect(await first).toMatchObject({ status: "succeeded", stdout: "first\n" });
    expect(await s.exec("[ ! -e /out/second ]")).toMatchObject({ status: "succeeded" });
  });

  it("is killed for memory by the kernel, and only where it was itself killed", async () => {
    const child = await s.exec("sh -c 'tail /dev/zero'; echo $?");
    expect(child).toMatchObject({ status: "succeeded", exitCode: 0, stdout: "137\n" });
    // Regression: the child of the command before was taken for the death of this one.
    expect(await s.exec("kill -9 $$")).toMatchObject({ status: "signaled", signal: "SIGKILL" });
    const itself = await s.exec("exec tail /dev/zero");
    expect(itself).toMatchObject({ status: "oom_killed", exitCode: null, signal: "SIGKILL" });
    expect(itself.hints.join()).toContain("256 MiB");
  });
});

describe("a session in a namespace with a root", () => {
  it("runs commands in the root's place in the cell, by either name of a directory", async () => {
    await using rooted = await openSessionIn({
      workers: { w: { command: ["true"], sandbox: { inherit: true }, shell_rules: { default: "pre_approved" } } },
      files: { "sub/a": "" },
      yaml: { sandbox: { root: { root: ".", readonly: true } } },
    });
    expect((await rooted.exec("pwd; ls sub")).stdout).toBe("/project\na\n");
    expect((await rooted.exec("pwd", { cwd: "/sub" })).stdout).toBe("/project/sub\n");
    expect((await rooted.exec("pwd", { cwd: "/project/sub" })).stdout).toBe("/project/sub\n");
  });
});

describe("a session of an image without a shell", () => {
  it("borrows one, and runs the image's own programs", async () => {
    await using project = await openHandySession();
    const { docker } = project.project;
    const image = `corral-test/static-${process.pid}`;
    // The gate is a static busybox, which is what it is called as.
    const program = await readFile(await project.project.corral.environment.gate());
    const tar = pack();
    tar.entry({ name: "bin/tac", mode: 0o755 }, program);
    tar.finalize();
    const options = { repo: image };
    for await (const message of await docker.importImage(Readable.from(tar), options))
      expect(`${message}`).not.toContain("error");
    try {
      await using bare = await openSessionIn({ workers: { w: { ...HANDY, image } }, zones: { docs: "ro", out: "rw" } });
      const answer = await bare.exec("printf 'a\\nb\\n' | /bin/tac; echo $HOME; exit 3");
      expect(answer).toMatchObject({ status: "failed", exitCode: 3, stdout: "b\na\n/home/worker\n" });
    } finally {
      await docker.getImage(image).remove();
    }
  });
});

it("leaves nothing behind", async () => {
  await using other = await openHandySession();
  await other.exec("sleep 4712 > /dev/null 2>&1 & echo");
  const cell = outsideCell(await other.cellId());
  expect(cell.processes()).not.toEqual([]);
  await other.close();
  expect(cell.processes()).toEqual([]);
  expect(await other.project.traces()).toEqual([]);
});
