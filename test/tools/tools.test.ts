import { symlink } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { writable } from "../run/project-fixture.ts";
import { openSessionIn, type SessionFixture } from "../run/session/session-fixture.ts";

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=",
  "base64",
);

let s: SessionFixture;

beforeAll(async () => {
  s = await openSessionIn({
    workers: {
      w: {
        command: ["true"],
        sandbox: { zones: [{ name: "docs" }, writable("out"), writable("notes")] },
        shell_rules: { default: "blocked", rules: [{ pattern: "ls **", approval: "pre_approved" }] },
        calls: ["kid", "fails"],
      },
      kid: { command: ["sh", "-c", "cat; cat /attachments/*"], sandbox: {} },
      fails: { command: ["sh", "-c", "exit 4"], sandbox: {} },
    },
    zones: { docs: "ro", out: "rw", notes: "rw" },
    files: {
      "docs/a.txt": "one\ntwo\nthree\n",
      "out/sub/b.txt": "b",
      "notes/n.md": "# n",
      "docs/bin.dat": "\0\u0001\0",
    },
  });
  await symlink("/etc/passwd", join(s.project.dir, "out/planted"));
  await s.session.files.write("/out/i.png", PNG);
});

afterAll(async () => {
  await s[Symbol.asyncDispose]();
});

async function told(name: string, input: unknown): Promise<string> {
  const result = await s.tool(name, input);
  return result.ok ? result.text : `${result.code}: ${result.message}`;
}

describe("each tool, used well, answers in words and in data", () => {
  it.each([
    ["read_file", { path: "/docs/a.txt" }, "one\ntwo\nthree\n", { totalLines: 3, truncated: false }],
    [
      "read_file",
      { path: "/out/i.png" },
      `Image (image/png, ${PNG.length} bytes).`,
      { type: "image", mimeType: "image/png" },
    ],
    ["list_files", { path: "docs" }, "/docs/a.txt (14 bytes)\n/docs/bin.dat (3 bytes)", {}],
    ["list_files", { path: "/", pattern: "**/*.md" }, "/notes/n.md (3 bytes)", {}],
    ["list_files", { path: "/docs", pattern: "*.pdf" }, "There are no entries.", { entries: [] }],
    ["write_file", { path: "/out/w", content: "w" }, "Created /out/w (1 bytes).", { created: true, bytes: 1 }],
    ["write_file", { path: "/out/w", content: "ww" }, "Replaced /out/w (2 bytes).", { created: false, bytes: 2 }],
    ["append_file", { path: "/out/w", content: "x" }, "Appended to /out/w; its size is now 3 bytes.", { bytes: 3 }],
    [
      "edit_file",
      { path: "/out/w", edits: [{ old: "w", new: "y", all: true }] },
      "Edited /out/w in 2 places.",
      { replacements: 2 },
    ],
    ["copy_file", { from: "/out/w", to: "/out/c" }, "Copied /out/w to /out/c.", { files: 1 }],
    ["move_file", { from: "/out/c", to: "/notes/d" }, "Moved /out/c to /notes/d.", {}],
    ["delete_file", { path: "/notes/d" }, "Deleted /notes/d (1 files, 0 directories).", { files: 1 }],
    [
      "delete_file",
      { path: "/out/sub", recursive: true },
      "Deleted /out/sub (1 files, 1 directories).",
      { folders: 1 },
    ],
    [
      "call_worker",
      { worker: "kid", input: [1], attachments: [{ path: "/docs/a.txt", name: "x" }] },
      "[1]\none\ntwo\nthree\n",
      { status: "succeeded" },
    ],
    ["exec", { command: "ls /docs" }, "a.txt\nbin.dat\n", { status: "succeeded", exitCode: 0 }],
  ])("%s of %j", async (name, input, text, data) => {
    expect(await s.tool(name, input)).toMatchObject({ ok: true, text, data });
  });

  it("file_info tells the kind, the size, the time and the rights", async () => {
    expect(await told("file_info", { path: "docs/a.txt" })).toMatch(
      /^\/docs\/a\.txt: file, 14 bytes, changed \d{4}-\d\d-\d\dT[\d:.]+Z, read-only\.$/,
    );
    expect(await told("file_info", { path: "/out" })).toMatch(
      /^\/out: directory, changed .*, readable and writable\.$/,
    );
  });

  it("an image comes along, for those who can look at one", async () => {
    const result = await s.tool("read_file", { path: "/out/i.png" });
    expect(result.ok && result.image).toEqual({ mimeType: "image/png", base64: PNG.toString("base64") });
  });

  it("a long file comes in pieces, and the answer says how to go on", async () => {
    const text = await told("read_file", { path: "/docs/a.txt", limit: 1 });
    expect(text).toMatch(/^one\n\n?\[.*offset.*2.*\]$/s);
    expect(await told("read_file", { path: "/docs/a.txt", offset: 2, limit: 1 })).toMatch(/^two\n/);
  });
});

/** Every refusal that a tool can be led to, with its code. */
const REFUSALS: readonly (readonly [string, unknown, string])[] = [
  ["read_file", { path: "/etc/passwd" }, "PATH_NOT_IN_SANDBOX"],
  ["read_file", { path: "../../etc/passwd" }, "PATH_NOT_IN_SANDBOX"],
  ["read_file", { path: "/out/planted" }, "FILE_SYSTEM"],
  ["read_file", { path: "/docs/none" }, "NOT_FOUND"],
  ["read_file", { path: "/docs" }, "FILE_SYSTEM"],
  ["read_file", { path: "/docs/bin.dat" }, "FILE_SYSTEM"],
  ["write_file", { path: "/docs/a.txt", content: "" }, "PATH_NOT_WRITABLE"],
  ["write_file", { path: "/out/planted", content: "" }, "FILE_SYSTEM"],
  ["write_file", { path: "/notes/n.md", content: "", overwrite: false }, "FILE_SYSTEM"],
  ["append_file", { path: "/elsewhere", content: "" }, "PATH_NOT_IN_SANDBOX"],
  ["edit_file", { path: "/notes/n.md", edits: [{ old: "absent", new: "" }] }, "EDIT"],
  ["delete_file", { path: "/docs/a.txt" }, "PATH_NOT_WRITABLE"],
  ["delete_file", { path: "/out" }, "FILE_SYSTEM"],
  ["move_file", { from: "/docs/a.txt", to: "/out/a.txt" }, "PATH_NOT_WRITABLE"],
  ["copy_file", { from: "/docs/a.txt", to: "/docs/b.txt" }, "PATH_NOT_WRITABLE"],
  ["copy_file", { from: "/docs/a.txt", to: "/notes/n.md" }, "FILE_SYSTEM"],
  ["list_files", { path: "/etc" }, "PATH_NOT_IN_SANDBOX"],
  ["file_info", { path: "/.corral/socket" }, "PATH_NOT_IN_SANDBOX"],
  ["exec", { command: "ls /docs; id" }, "COMMAND_BLOCKED"],
  ["exec", { command: "ls", cwd: "/etc" }, "COMMAND_BLOCKED"],
  ["exec", { command: "ls", env: { HOME: "/" } }, "COMMAND_BLOCKED"],
  ["call_worker", { worker: "boss" }, "CALL_NOT_LISTED"],
  ["call_worker", { worker: "kid", attachments: ["/etc/passwd"] }, "ATTACHMENT_REFUSED"],
  ["call_worker", { worker: "fails" }, "FAILED"],
  ["no_tool", {}, "NO_SUCH_TOOL"],
  ["read_file", {}, "BAD_INPUT"],
  ["read_file", { path: "" }, "BAD_INPUT"],
  ["read_file", { path: "/docs/a.txt", offset: 0 }, "BAD_INPUT"],
  ["write_file", { path: "/out/x" }, "BAD_INPUT"],
  ["edit_file", { path: "/out/x", edits: [] }, "BAD_INPUT"],
  ["exec", { command: "ls", timeout_ms: 0.5 }, "BAD_INPUT"],
  ["exec", null, "BAD_INPUT"],
];

describe("each tool, used wrongly", () => {
  it.each(REFUSALS)("%s of %j is refused as %s", async (name, input, code) => {
    const result = await s.tool(name, input);
    expect(result).toMatchObject({ ok: false, code });
    const everything = JSON.stringify(result);
    expect(everything).not.toContain(s.project.dir);
    expect(everything).not.toContain(s.project.stateDir);
    expect(everything).not.toMatch(/\bzones?\b/i);
  });

  it("says where in the input the mistake is, and which tools there are", async () => {
    const nested = await told("edit_file", {
      path: "/out/w",
      edits: [
        { old: "a", new: "b" },
        { old: 1, new: "b" },
      ],
    });
    expect(nested).toMatch(/BAD_INPUT: The input of edit_file is not valid:\n✖ .*string.*\n\s+→ at edits\[1\]\.old$/);
    expect(await told("reed_file", {})).toContain("The tools are: read_file, write_file, edit_file, append_file");
  });

  it("the other failures of a call come with the child's whole result", async () => {
    const result = await s.tool("call_worker", { worker: "fails" });
    expect(result).toMatchObject({ ok: false, data: { status: "failed", exitCode: 4, worker: "fails" } });
  });
});

describe("an input with an unknown field", () => {
  it("is refused with the fields that the tool has", async () => {
    expect(await told("write_file", { path: "/out/w", contents: "w" })).toContain(
      "The fields are: path, content, encoding, overwrite.",
    );
  });
});
