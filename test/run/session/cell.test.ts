import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { EngineTrouble } from "../../../src/isolation/port/driver.ts";
import { outsideCell, takeCellAway } from "../outside-cell.ts";
import { openHandySession, openSessionIn, type SessionFixture } from "./session-fixture.ts";

const never = new AbortController().signal;

async function outside(s: SessionFixture) {
  return outsideCell(await s.cellId());
}

describe("a session's cell", () => {
  it("is one, however many want it first", async () => {
    await using s = await openHandySession();
    const [first, ...others] = await Promise.all([
      s.session.cell(never),
      s.session.cell(never),
      s.exec("true").then(() => s.session.cell(never)),
    ]);
    for (const other of others) expect(other).toBe(first);
    expect(await s.project.corral.environment.driver.list()).toHaveLength(1);
  });

  it("is not started by file tools", async () => {
    await using s = await openHandySession();
    await s.tool("read_file", { path: "/docs/a.txt" });
    expect(await s.project.corral.environment.driver.list()).toEqual([]);
  });

  it("that ended by itself is replaced with the next command, which says so once", async () => {
    await using s = await openHandySession();
    await s.exec("echo kept > /tmp/kept");
    const opened = await s.session.cell(never);
    (await outside(s)).kill();
    await opened.cell.exit;
    expect(await s.exec("ls /tmp")).toMatchObject({ status: "succeeded", stdout: "", cellReplaced: true });
    expect(await s.exec("true")).toMatchObject({ cellReplaced: false });
    expect(await s.project.corral.environment.driver.list()).toHaveLength(1);
  });

  it("that is killed under a command takes it along, and says so", async () => {
    await using s = await openHandySession();
    const cell = s.session.cell(never).then(() => outside(s));
    const answer = await s.session.exec(
      { command: "echo begun; sleep 4721" },
      never,
      () => void cell.then((c) => c.kill()),
    );
    expect(answer).toMatchObject({ stdout: "begun\n", cellReplaced: true });
    expect([answer.status, answer.exitCode].join()).toMatch(/^(signaled,137|lost,)$/);
    expect((await s.exec("echo after")).stdout).toBe("after\n");
  });

  it("that is taken away under a command is told as killed or as lost, and nobody makes up an exit code", async () => {
    await using s = await openHandySession();
    const { plan } = await s.session.cell(never);
    const removed = Promise.withResolvers<void>();
    const remove = (): void => void takeCellAway(s.project.corral).then(removed.resolve, removed.reject);
    const result = await s.session.exec({ command: "echo begun; sleep 4722" }, never, remove);
    expect(result).toMatchObject({ cellReplaced: true });
    expect([result.status, result.signal, result.exitCode].join()).toMatch(/^(signaled,SIGKILL,137|lost,,)$/);
    expect(await s.exec("echo after")).toMatchObject({ stdout: "after\n", cellReplaced: false });
    // Where both remove it at once, the Engine may refuse Corral, whose volumes then wait to be reaped.
    await removed.promise;
    const { docker } = s.project;
    const { Volumes } = await docker.listVolumes({ filters: { label: [`dev.corral.run=${plan.run}`] } });
    for (const { Name } of Volumes ?? []) await docker.getVolume(Name).remove();
  });

  it("that cannot start is told as lost, and the next command tries again", async () => {
    await using s = await openHandySession();
    const { environment } = s.project.corral;
    const { startSession } = environment.driver;
    const fails = () => Promise.reject(new EngineTrouble("no way to the engine"));
    Object.assign(environment.driver, { startSession: fails });
    expect(await s.exec("true")).toMatchObject({ status: "lost", exitCode: null });
    const result = await s.tool("exec", { command: "true" });
    expect(result).toMatchObject({ ok: true, text: expect.stringContaining("container engine failed") });
    Object.assign(environment.driver, { startSession });
    expect((await s.exec("echo after")).stdout).toBe("after\n");
  });

  it("ends with its session, also in the middle of several commands", async () => {
    await using s = await openHandySession();
    const running = ["sleep 4723", "sleep 4724; touch /out/second", "setsid sleep 4725; touch /out/third"].map(
      (command) => s.tool("exec", { command }),
    );
    await s.session.cell(never);
    await expect.poll(() => s.processes()).toEqual(expect.arrayContaining(["sleep 4723", "sleep 4724", "sleep 4725"]));
    await s.close();
    const ended = await Promise.all(running);
    expect(ended.map((result) => (result.ok ? result.data.status : result.code))).toEqual([
      "cancelled",
      "cancelled",
      "cancelled",
    ]);
    expect(await readdir(join(s.project.dir, "out"))).toEqual([]);
    expect(await s.project.traces()).toEqual([]);
    expect(await s.tool("read_file", { path: "/docs/a.txt" })).toMatchObject({ ok: false, code: "CANCELLED" });
    await expect(s.session.cell(never)).rejects.toThrow("the session has ended");
  });

  it("is not left behind where its session ends while it starts", async () => {
    await using s = await openHandySession();
    const starting = s.tool("exec", { command: "true" });
    await s.close();
    expect(await starting).toMatchObject({ ok: true, data: { status: "cancelled", exitCode: null } });
    expect(await s.project.traces()).toEqual([]);
  });

  it("goes only when the commands that a program asked for directly have ended as well", async () => {
    await using s = await openHandySession();
    const running = s.exec("echo begun; sleep 4725");
    await s.session.cell(never);
    await s.close();
    expect(await running).toMatchObject({ status: "cancelled", cellReplaced: false });
    expect(await s.project.traces()).toEqual([]);
  });

  it("shows a worker's files as its tools do, at the same moment", async () => {
    await using s = await openHandySession();
    await s.tool("write_file", { path: "/out/from-tool", content: "tool" });
    expect((await s.exec("cat /out/from-tool; echo cell > /out/from-cell")).stdout).toBe("tool");
    expect(await s.tool("read_file", { path: "/out/from-cell" })).toMatchObject({ text: "cell\n" });
    expect(await s.tool("append_file", { path: "/out/from-cell", content: "tool\n" })).toMatchObject({ ok: true });
    expect((await s.exec("cat /out/from-cell; echo x > /docs/x")).stdout).toBe("cell\ntool\n");
  });

  it("does not even hold the files that may not be read", async () => {
    await using s = await openSessionIn({
      workers: { w: { command: ["true"], sandbox: { inherit: true }, shell_rules: { default: "pre_approved" } } },
      files: { "notes/a.md": "# a\n", "notes/a.sh": "x" },
      yaml: { sandbox: { paths: { notes: { root: "./notes", mode: "ro", suffixes: [".md"] } } } },
    });
    const listed = await s.tool("exec", { command: "ls /notes; cat /notes/a.md; cat /notes/a.sh; touch /notes/b.md" });
    expect(listed).toMatchObject({ ok: true, data: { status: "failed", stdout: "a.md\n# a\n" } });
    expect(await s.tool("read_file", { path: "/notes/a.md" })).toMatchObject({ ok: true, text: "# a\n" });
    expect(await s.tool("read_file", { path: "/notes/a.sh" })).toMatchObject({ ok: false, code: "SUFFIX_NOT_ALLOWED" });
  });
});
