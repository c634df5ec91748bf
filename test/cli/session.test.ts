import { mkdir, readdir, readFile, readlink, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { ServiceClient } from "../../src/client/client.ts";
import { transportTo } from "../../src/client/node.ts";
import { type HeldSession, holdSession } from "../../src/serve/held-session.ts";
import { openLog } from "../../src/serve/logging/log.ts";
import { type CliProject, cliProject } from "./cli-project.ts";

let project: CliProject;

beforeAll(async () => {
  project = await cliProject({
    yaml: {
      version: 1,
      policy: "untrusted",
      approval: { mode: "interactive", timeout: "60s" },
      sandbox: { mode: "direct", zones: { out: { path: "out", mode: "rw" } } },
    },
    workers: {
      w: {
        command: ["true"],
        shell_rules: { default: "pre_approved" },
        sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved" }] },
      },
      asks: {
        command: ["true"],
        shell_rules: { default: "pre_approved" },
        sandbox: { zones: [{ name: "out", mode: "rw", approval: "ask", stage: true }] },
      },
      staged: {
        command: ["true"],
        shell_rules: { default: "pre_approved" },
        sandbox: { zones: [{ name: "out", mode: "rw", approval: "pre_approved", stage: true }] },
      },
    },
    folders: ["out"],
  });
});

afterAll(async () => {
  for (const { pid } of await held()) process.kill(pid, "SIGKILL");
  await project.built(["reap"]);
  await project[Symbol.asyncDispose]();
});

interface Held {
  readonly name: string;
  readonly id: string;
  readonly pid: number;
}

async function held(): Promise<Held[]> {
  return JSON.parse((await project.corral(["session", "ls", "--json"])).stdout) as Held[];
}

const on = (...args: string[]) => project.corral(["session", ...args]);

describe("corral session", () => {
  it("holds a session that commands, files and signals reach, each command with its own end, until it is stopped", async () => {
    expect(await project.built(["session", "start", "w", "--name", "dev"])).toMatchObject({
      status: 0,
      stdout: "dev\n",
    });
    expect(await held()).toMatchObject([{ name: "dev", worker: "w" }]);
    expect(await on("start", "w", "--name", "dev")).toMatchObject({ status: 2 });
    const ran = await on("exec", "dev", "--cwd", "/out", "--", "sh", "-c", "pwd; echo 'a  b' >&2; exit 7");
    expect(ran).toMatchObject({ status: 7, stdout: "/out\n", stderr: "a  b\n" });
    const fed = await project.corral(["session", "exec", "dev", "-i", "--", "wc", "-c"], {
      stdin: "x".repeat(100_000),
    });
    expect(fed).toMatchObject({ status: 0, stdout: "100000\n" });
    const shell = await project.corral(["session", "shell", "dev"], { stdin: "cd /out; pwd\nexit 3\n" });
    expect(shell).toMatchObject({ status: 3, stdout: "/out\n" });
    const id = (await on("exec", "dev", "--background", "--", "sh", "-c", "echo up; sleep 4761")).stdout.trim();
    await expect.poll(async () => (await on("logs", "dev", id)).stdout).toBe("up\n");
    const bound = await on("exec", "dev", "--timeout", "90s", "--", "sh", "-c", "kill -TERM $$");
    expect(bound.status).toBe(143);
    expect(JSON.parse((await on("ls", "dev", "--json")).stdout)).toEqual(
      expect.arrayContaining([expect.objectContaining({ id, status: "running" })]),
    );
    const waiting = on("wait", "dev", id);
    expect(await on("signal", "dev", id, "KILL")).toMatchObject({ status: 0 });
    expect((await waiting).status).toBe(137);
    expect(await on("signal", "dev", id)).toMatchObject({ status: 2, stderr: expect.stringContaining("has ended") });
    expect(await on("exec", "dev", "--cwd", "/etc", "--", "true")).toMatchObject({ status: 126 });
    expect(await on("exec", "nobody", "--", "true")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("dev"),
    });
  });

  it("puts and gets files and folders as they are, and no link of a folder leads out of it", async () => {
    const at = (path: string) => join(project.dir, path);
    // It can be repeated.
    for (const made of ["tree", "back"]) await rm(at(made), { recursive: true, force: true });
    await on("exec", "dev", "--", "rm", "-rf", "/tmp/tree");
    await mkdir(at("tree/in/empty"), { recursive: true });
    const large = Buffer.alloc(5_000_000, "ab\0");
    await writeFile(at("tree/in/large"), large);
    await writeFile(at("tree/none"), "");
    await symlink("in/large", at("tree/link"));
    expect(await on("put", "dev", at("tree"), "/tmp/tree")).toMatchObject({ status: 0 });
    await on("exec", "dev", "--", "ln", "-s", "/etc/passwd", "/tmp/tree/out");
    expect(await on("get", "dev", "/tmp/tree", at("back"))).toMatchObject({
      status: 0,
      stderr: expect.stringContaining("1 links"),
    });
    expect((await readdir(at("back"))).toSorted()).toEqual(["in", "link", "none"]);
    expect(await readFile(at("back/in/large"))).toEqual(large);
    expect(await readlink(at("back/link"))).toBe("in/large");
    expect(await on("get", "dev", "/tmp/tree", at("back"))).toMatchObject({ status: 2 });
    expect(await project.corral(["session", "put", "dev", "-", "/out/typed"], { stdin: "typed" })).toMatchObject({
      status: 0,
    });
    expect(await readFile(at("out/typed"), "utf8")).toBe("typed");
    expect(await on("get", "dev", "/out/typed", "-")).toMatchObject({ stdout: "typed" });
    expect(await on("get", "dev", "/tmp/tree/out", at("passwd"))).toMatchObject({ status: 126 });
    expect(await on("put", "dev", at("tree"), "/etc/tree")).toMatchObject({ status: 126 });
    expect(await on("put", "dev", at("nowhere"), "/tmp/x")).toMatchObject({ status: 2 });
  });

  it("is paused, resumed and stopped, and its process and container end with it", async () => {
    expect(await on("pause", "dev")).toMatchObject({ status: 0 });
    expect(await on("exec", "dev", "--", "true")).toMatchObject({
      status: 126,
      stderr: expect.stringContaining("paused"),
    });
    expect(await on("resume", "dev")).toMatchObject({ status: 0 });
    expect(await on("exec", "dev", "--", "true")).toMatchObject({ status: 0 });
    expect(await on("stop", "dev")).toMatchObject({ status: 0 });
    await expect.poll(held).toEqual([]);
    await expect.poll(() => project.cells()).toEqual([]);
  });

  it("is paused when it is not used, the next command resumes it, and after longer it ends", async () => {
    const held = Promise.withResolvers<HeldSession>();
    const ended = holdSession(
      {
        dir: project.dir,
        worker: "w",
        policy: null,
        ports: [],
        name: "rests",
        idle: { pauseMs: 300, endMs: 8000 },
        stateDir: project.stateDir,
        env: process.env,
        log: openLog({ level: "silent", pretty: false, write: () => {} }),
        emit: () => {},
      },
      new AbortController().signal,
      held.resolve,
    );
    ended.catch(held.reject);
    const { address, id: session } = await held.promise;
    const client = new ServiceClient(transportTo(address), null);
    const rests = async () => (await client.call("sessions.show", { session })).isPaused;
    const ticks = async () => (await stat(join(project.dir, "out/ticks"))).size;
    const leaves = "(while :; do echo tick; sleep 0.02; done) > /out/ticks 2> /dev/null < /dev/null & sleep 1";
    // While a command runs it is in use, for longer than it would rest.
    expect(await on("exec", "rests", "--", "sh", "-c", leaves)).toMatchObject({ status: 0 });
    // Who only looks, as a page does all the time, neither keeps it awake nor resumes it.
    const looks = async () => {
      const { commands } = await client.call("sessions.commands", { session });
      await client.call("sessions.command", { session, command: commands[0]?.id ?? "" });
      await client.call("ports.list", { session });
      return await rests();
    };
    await expect.poll(looks, { interval: 100 }).toBe(true);
    expect(await looks()).toBe(true);
    const before = await ticks();
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await ticks()).toBe(before);
    const woken = await Promise.all([on("exec", "rests", "--", "true"), on("exec", "rests", "--", "true")]);
    expect(woken).toMatchObject([{ status: 0 }, { status: 0 }]);
    expect(await ticks()).toBeGreaterThan(before);
    // Who has paused it resumes it: no command does.
    await expect.poll(rests).toBe(true);
    expect(await on("pause", "rests")).toMatchObject({ status: 0 });
    expect(await on("exec", "rests", "--", "true")).toMatchObject({ status: 126 });
    await ended;
    expect(await project.cells()).toEqual([]);
  });

  it("refuses to end before it is paused", async () => {
    expect(await on("start", "w", "--idle", "30m", "--end-after", "30m")).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("--end-after is longer"),
    });
  });

  it("ends with its process: after kill -9 nothing of it runs, and its name is free", async () => {
    await project.built(["session", "start", "w"]);
    expect(await on("exec", "w", "--background", "--", "sleep", "4762")).toMatchObject({ status: 0 });
    const [one] = await held();
    if (one === undefined) throw new Error("no session is held");
    process.kill(one.pid, "SIGKILL");
    await expect.poll(held).toEqual([]);
    await project.built(["reap"]);
    expect(await project.cells()).toEqual([]);
    expect(await project.built(["session", "start", "w", "--idle", "1m", "--json"])).toMatchObject({ status: 0 });
    expect(await on("stop", "w")).toMatchObject({ status: 0 });
    await expect.poll(held).toEqual([]);
  });

  it("has snapshots: another begins from one, it goes back to one, and goes on from its last after its process was stopped", async () => {
    const wrote = async (session: string, text: string) =>
      expect(await on("exec", session, "--", "sh", "-c", `echo ${text} > /out/note`)).toMatchObject({ status: 0 });
    const note = async (session: string) => (await on("exec", session, "--", "cat", "/out/note")).stdout;
    expect(await project.built(["session", "start", "w"])).toMatchObject({ status: 0 });
    expect(await on("snapshot", "w")).toMatchObject({ status: 126, stderr: expect.stringContaining("stage: true") });
    expect(await on("stop", "w")).toMatchObject({ status: 0 });
    expect(await project.built(["session", "start", "staged", "--name", "s"])).toMatchObject({ status: 0 });
    await wrote("s", "one");
    expect(await on("snapshot", "s", "first")).toMatchObject({ status: 0 });
    await wrote("s", "two");
    expect(JSON.parse((await on("diff", "s", "first", "--json")).stdout)).toEqual([
      { path: "/out/note", kind: "modify", type: "file", bytes: 4 },
    ]);
    expect(await project.built(["session", "fork", "first", "--name", "f"])).toMatchObject({ status: 0 });
    expect(await project.built(["session", "fork", "s", "--name", "g"])).toMatchObject({ status: 0 });
    expect([await note("f"), await note("g")]).toEqual(["one\n", "two\n"]);
    for (const fork of ["f", "g"]) expect(await on("stop", fork, "--discard")).toMatchObject({ status: 0 });
    expect(await readdir(join(project.dir, "out"))).not.toContain("note");
    expect((await project.corral(["changes", "--json"])).stdout).not.toContain("/out/note");
    expect(await on("restore", "s", "first")).toMatchObject({ status: 0 });
    expect(await note("s")).toBe("one\n");
    expect((await on("snapshots")).stdout).toContain("first");
    expect(await on("snapshots", "s", "--rm", "first")).toMatchObject({ status: 0 });
    expect(await on("restore", "s", "first")).toMatchObject({ status: 2 });
    await wrote("s", "three");
    for (const { pid } of await held()) process.kill(pid, "SIGTERM");
    await expect.poll(held, { timeout: 20_000 }).toEqual([]);
    expect(await project.built(["session", "start", "staged", "--name", "s", "--from", "s"])).toMatchObject({
      status: 0,
    });
    expect(await note("s")).toBe("three\n");
    expect(await on("stop", "s")).toMatchObject({ status: 0 });
    expect(await readFile(join(project.dir, "out/note"), "utf8")).toBe("three\n");
    await expect.poll(held).toEqual([]);
    expect(await project.built(["session", "start", "staged", "--from", "s"])).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("no snapshot s"),
    });
  });

  it("says while it is stopped that what it wrote may wait for an answer, and ends with that", async () => {
    expect(await project.built(["session", "start", "asks"])).toMatchObject({ status: 0 });
    expect(await on("exec", "asks", "--", "sh", "-c", "echo asked > /out/asked")).toMatchObject({ status: 0 });
    const stopping = on("stop", "asks");
    await pause(3000);
    const [question] = JSON.parse((await project.corral(["approvals", "ls", "--json"])).stdout).approvals;
    expect(await project.corral(["approvals", "decide", question.id, "once"])).toMatchObject({ status: 0 });
    expect(await stopping).toMatchObject({ status: 0, stderr: expect.stringContaining("corral approvals ls") });
    expect(await readFile(join(project.dir, "out/asked"), "utf8")).toBe("asked\n");
  });

  it("says why a session cannot be opened, with the exit status of that", async () => {
    expect(await project.built(["session", "start", "nobody"])).toMatchObject({
      status: 2,
      stderr: expect.stringContaining("there is no worker nobody"),
    });
    expect(await on("ls")).toMatchObject({ status: 0, stderr: expect.stringContaining("session start") });
  });
});
