import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { extract, pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CommandStart, PrintedPiece } from "../../../src/run/session/started-commands.ts";
import { isAgain } from "../../tiers/again.ts";
import { openHandySession, type SessionFixture } from "./session-fixture.ts";

const never = new AbortController().signal;
let s: SessionFixture;

beforeAll(async () => {
  s = await openHandySession({ limits: { output: "64m" } });
});

afterAll(async () => {
  await s[Symbol.asyncDispose]();
});

function start(command: string, more: Partial<CommandStart> = {}) {
  return s.session.start({ command, hasInput: false, isBackground: true, ...more }, false, never);
}

async function textOf(pieces: AsyncIterable<PrintedPiece | null>): Promise<string> {
  let text = "";
  for await (const piece of pieces) text += piece?.bytes.toString() ?? "";
  return text;
}

const all = { follow: true, idleMs: 60_000, signal: never, takes: true };

describe("a command that is started", () => {
  it("runs in the background: its output is read at any time, it takes input, a signal and a second reader", async () => {
    const server = await start("echo up; while read -r line; do echo got $line; done; echo bye >&2; exit 4", {
      hasInput: true,
    });
    await server.write(Buffer.from("one\n"));
    await expect.poll(() => textOf(server.output.read(0, { ...all, follow: false }))).toBe("up\ngot one\n");
    const reading = textOf(server.output.read(3, all));
    await server.write(Buffer.from("two\n"));
    server.closeInput();
    expect(await server.ended).toMatchObject({ status: "failed", exitCode: 4 });
    expect(await reading).toBe("got one\ngot two\nbye\n");
    expect(await textOf(server.output.read(0, all))).toBe("up\ngot one\ngot two\nbye\n");
    const asleep = await start("trap 'echo asked; exit 7' TERM; sleep 4741 & wait");
    const other = await start("sleep 4742");
    await s.exec("true");
    expect(await asleep.signal("SIGTERM")).toBe(true);
    expect(await asleep.ended).toMatchObject({ status: "failed", exitCode: 7 });
    expect((await s.processes()).filter((line) => line.startsWith("sleep"))).toEqual(["sleep 4742"]);
    expect(await other.signal("SIGKILL")).toBe(true);
    expect(await other.ended).toMatchObject({ status: "signaled", signal: "SIGKILL" });
    expect(s.session.started.find(other.id)).toBe(other);
  });

  it("has a terminal, its size, and an end of its own", async () => {
    const shell = await start(
      "until [ \"$(stty size)\" = '33 90' ]; do sleep 0.05; done; tty > /dev/null && echo terminal; sleep 4743; true",
      {
        tty: { columns: 90, rows: 33 },
        hasInput: true,
        isBackground: false,
      },
    );
    const text = textOf(shell.output.read(0, all));
    await expect.poll(() => shell.output.end).toBe(10);
    expect(await shell.signal("SIGKILL")).toBe(true);
    expect(await shell.ended).toMatchObject({ status: "signaled" });
    expect(await text).toBe("terminal\r\n");
    expect(await s.processes()).toEqual([]);
  });

  it("lives on if a terminal's command is ended while it begins", async () => {
    for (let round = 0; round < 5; round += 1) {
      const shell = await start("sleep 4745", { tty: { columns: 90, rows: 33 }, hasInput: true });
      const ending = shell.signal("SIGKILL");
      const next = await start("sleep 4746");
      expect(await ending).toBe(true);
      await shell.ended;
      expect(await next.signal("SIGCONT")).toBe(true);
      expect(next.ending).toBeNull();
      await next.signal("SIGKILL");
      await next.ended;
    }
  });

  it("in the foreground waits for its reader, in the background keeps the end of its output", async () => {
    const waits = await start("head -c 8000000 /dev/zero", { isBackground: false });
    await expect.poll(() => waits.output.end).toBeGreaterThan(1024 ** 2);
    const kept = await start("seq 400000");
    expect(await kept.ended).toMatchObject({ status: "succeeded", signal: null });
    const [first] = await Array.fromAsync(kept.output.read(0, all));
    expect(first?.missingBytes).toBeGreaterThan(1_000_000);
    expect((await textOf(kept.output.read(0, all))).endsWith("399999\n400000\n")).toBe(true);
    expect([waits.ending, waits.output.end < 4_000_000]).toEqual([null, true]);
    let bytes = 0;
    for await (const piece of waits.output.read(0, all)) bytes += piece?.bytes.length ?? 0;
    expect([bytes, (await waits.ended).status]).toEqual([8_000_000, "succeeded"]);
    const bounded = await start("sleep 4744", { isBackground: false, timeoutMs: 300 });
    expect((await bounded.ended).status).toBe("timed_out");
  });

  it("stands still while the session is paused, and no other begins", async () => {
    const ticks = await start("while :; do echo tick; sleep 0.05; done");
    await expect.poll(() => ticks.output.end).toBeGreaterThan(0);
    expect(await s.session.pause(true)).toBe(true);
    // What was on its way when it stopped has come.
    await new Promise((resolve) => setTimeout(resolve, 500));
    const before = ticks.output.end;
    await expect(start("true")).rejects.toMatchObject({ code: "SESSION_PAUSED" });
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(ticks.output.end).toBe(before);
    expect(await s.session.pause(false)).toBe(true);
    await expect.poll(() => ticks.output.end).toBeGreaterThan(before);
    await ticks.signal("SIGKILL");
  });

  it("is refused as the tool `exec` would be", async () => {
    await expect(start("true", { cwd: "/etc" })).rejects.toMatchObject({ code: "BAD_DIRECTORY" });
    await using asks = await openHandySession({ shell_rules: { default: "blocked" } });
    const request = { command: "true", hasInput: false, isBackground: true };
    await expect(asks.session.start(request, false, never)).rejects.toMatchObject({ code: "COMMAND_BLOCKED" });
    await using none = await openHandySession({ tools: ["read_file"] });
    await expect(none.session.start(request, false, never)).rejects.toMatchObject({ code: "TOOL_NOT_OFFERED" });
    const sent = { path: "/tmp/a", kind: "file", content: piecesOf("a") } as const;
    await expect(none.session.put(sent, never)).rejects.toMatchObject({ code: "TOOL_NOT_OFFERED" });
  });
});

async function* piecesOf(...texts: readonly (string | Buffer)[]) {
  for (const text of texts) yield Buffer.from(text);
}

async function got(path: string, maxBytes?: number): Promise<{ kind: string; bytes: Buffer }> {
  const taken = Promise.withResolvers<void>();
  try {
    const { kind, content } = await s.session.get(path, taken.promise, never, maxBytes);
    return { kind, bytes: Buffer.concat(await Array.fromAsync(content)) };
  } finally {
    taken.resolve();
  }
}

const put = (path: string, content: AsyncIterable<Uint8Array>, kind: "file" | "folder" = "file") =>
  s.session.put({ path, kind, content }, never);

describe("files of any size", () => {
  it("go up and down as they are, also in memory of the cell, and are whole or not there", async () => {
    const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
    expect(await put("/out/new/every", piecesOf(every, every))).toEqual({ kind: "file", bytes: 512, files: 1 });
    expect(await readFile(join(s.project.dir, "out/new/every"))).toEqual(Buffer.concat([every, every]));
    await put("/tmp/a b", piecesOf("in memory"));
    expect(await got("/tmp/a b")).toEqual({ kind: "file", bytes: Buffer.from("in memory") });
    const megabytes = isAgain() ? 8 : 64;
    const block = Buffer.alloc(1024 ** 2, "x");
    await put("/out/large", piecesOf(...Array.from({ length: megabytes }, () => block)));
    expect((await got("/out/large")).bytes.length).toBe(megabytes * 1024 ** 2);
    expect((await got("/out/new/every", 512)).bytes).toHaveLength(512);
    for (const [path, most] of [["/out/new/every", 511] as const, ["/out", 10_000], ["/out/large", 1024 ** 2]] as const)
      await expect(got(path, most)).rejects.toMatchObject({ code: "TOO_LARGE" });
    async function* breaks() {
      yield Buffer.from("half");
      throw new Error("the client has gone");
    }
    await expect(put("/out/half", breaks())).rejects.toThrow("gone");
    expect((await s.exec("ls -A /out")).stdout).toBe("large\nnew\n");
  });

  it("go up and down as folders, with long and foreign names, executables and links inside", async () => {
    const long = `${"ü".repeat(90)}/${"n".repeat(120)}`;
    const tar = pack();
    tar.entry({ name: "./", type: "directory" });
    tar.entry({ name: long }, "long");
    tar.entry({ name: "bin/run", mode: 0o755 }, "#!/bin/sh\necho ran\n");
    tar.entry({ name: "link", type: "symlink", linkname: "bin/run" });
    tar.finalize();
    expect(await put("/out/tree", tar as AsyncIterable<Uint8Array>, "folder")).toMatchObject({
      kind: "folder",
      files: 2,
    });
    expect((await s.exec(`/out/tree/link; cat "/out/tree/${long}"`)).stdout).toBe("ran\nlong");
    const { kind, bytes } = await got("/out/tree");
    expect(kind).toBe("folder");
    const reader = extract();
    const names: string[] = [];
    reader.end(bytes);
    for await (const entry of reader) {
      names.push(`${entry.header.type} ${entry.header.name}`);
      entry.resume();
    }
    expect(names).toEqual(expect.arrayContaining([`file ./${long}`, "file ./bin/run", "symlink ./link"]));
  });

  it.each([
    [{ name: "../x" }, "leads out"],
    [{ name: "/etc/x" }, "leads out"],
    [{ name: "l", type: "symlink", linkname: "../../docs" }, "leads out"],
    [{ name: "l", type: "symlink", linkname: "/etc/passwd" }, "leads out"],
    [{ name: "h", type: "link", linkname: "/etc/passwd" }, "is no file"],
    [{ name: "d", type: "character-device" }, "is no file"],
    [{ name: "p", type: "fifo" }, "is no file"],
  ] as const)("are refused as a folder with %j", async (header, why) => {
    const tar = pack();
    tar.entry({ ...header });
    tar.finalize();
    await expect(put("/out/refused", tar as AsyncIterable<Uint8Array>, "folder")).rejects.toMatchObject({
      code: "BAD_ARCHIVE",
      message: expect.stringContaining(why),
    });
  });

  it("are refused outside of the sandbox, and where a link leads", async () => {
    await expect(put("/docs/a", piecesOf("x"))).rejects.toMatchObject({ code: "PATH_NOT_WRITABLE" });
    await expect(put("/etc/a", piecesOf("x"))).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
    for (const path of ["/etc/passwd", "/proc/1/environ", "/tmp/../etc/passwd", "/.corral/socket"])
      await expect(got(path), path).rejects.toMatchObject({ code: "PATH_NOT_IN_SANDBOX" });
    await mkdir(join(s.project.dir, "out/links"));
    await writeFile(join(s.project.dir, "host-secret"), "of the host");
    await symlink("../../host-secret", join(s.project.dir, "out/links/file"));
    await symlink("/etc", join(s.project.dir, "out/links/folder"));
    await expect(got("/out/links/file")).rejects.toMatchObject({ message: expect.stringContaining("link") });
    await expect(got("/out/links/folder/passwd")).rejects.toMatchObject({ message: expect.stringContaining("link") });
    await expect(put("/out/links/file", piecesOf("x"))).rejects.toMatchObject({
      message: expect.stringContaining("link"),
    });
    await expect(put("/out/links/folder/x", piecesOf("x"))).rejects.toMatchObject({
      message: expect.stringContaining("link"),
    });
    expect((await got("/out/links")).bytes.toString("latin1")).not.toContain("of the host");
    await expect(got("/out/nowhere")).rejects.toMatchObject({ message: expect.stringContaining("does not exist") });
    expect(await readFile(join(s.project.dir, "host-secret"), "utf8")).toBe("of the host");
  });
});
