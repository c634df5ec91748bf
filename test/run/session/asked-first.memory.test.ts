import { readFile, symlink } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import type { ApprovalRequest, Approver, Decision } from "../../../src/approval/approver.ts";
import { memoryEngine } from "../memory-engine.ts";
import type { OpenFixtureOptions } from "../project-fixture.ts";
import { openSessionIn, type SessionFixture } from "./session-fixture.ts";

const APPROVED: Decision = { outcome: "approved", scope: "once", reason: "it is fine" };

let opened: SessionFixture | null = null;

afterEach(async () => {
  await opened?.[Symbol.asyncDispose]();
  opened = null;
});

async function open(options: OpenFixtureOptions = {}): Promise<SessionFixture> {
  const zones = ["docs", "out", "texts", "shut", "boxed", "hung"];
  const rw = (name: string) => ({ name, mode: "rw" });
  const blocked = { write: "blocked", delete: "blocked" };
  opened = await openSessionIn(
    {
      workers: {
        w: {
          command: ["true"],
          sandbox: {
            zones: [
              { name: "docs" },
              ...["out", "texts", "boxed", "hung"].map(rw),
              { ...rw("shut"), approval: blocked },
            ],
          },
          shell_rules: { default: "ask" },
        },
      },
      zones: Object.fromEntries(zones.map((name) => [name, name === "docs" ? "ro" : "rw"])),
      sandbox: {
        zones: {
          docs: { path: "./docs", mode: "ro" },
          out: { path: "./out", mode: "rw" },
          texts: { path: "./texts", mode: "rw", suffixes: [".md"], max_file_bytes: 100 },
          shut: { path: "./shut", mode: "rw" },
          boxed: { path: "./boxed", at: "/out/box/in", mode: "rw" },
          hung: { path: "./hung", at: "/out/free/in", mode: "rw" },
        },
      },
      files: {
        "docs/a.txt": "a document\n",
        "docs/large.md": "x".repeat(200),
        "out/a": "one\ntwo\ntwo\n",
        "out/d/inner": "x",
        "out/box/beside": "x",
        "out/d2/a": "x",
        "out/mixed/large.md": "x".repeat(101),
        "out/kinds/b.exe": "x",
        "texts/n.md": "a note\n",
        "shut/s": "s",
      },
    },
    { engine: memoryEngine({ programs: {} }).open, ...options },
  );
  await symlink("/etc/passwd", join(opened.project.dir, "out/link"));
  await symlink("d", join(opened.project.dir, "out/to-d"));
  await symlink("../a", join(opened.project.dir, "out/d2/up"));
  return opened;
}

/** Answers always the same, after `first`. */
function person(decision: Decision, first: () => Promise<void> = async () => {}) {
  const asked: ApprovalRequest[] = [];
  const approver: Approver = {
    async decide(request) {
      asked.push(request);
      await first();
      return decision;
    },
  };
  return { approver, asked };
}

/** What each tool is refused for, whoever would agree. */
const REFUSED: readonly (readonly [tool: string, input: unknown, code: string, says: string])[] = [
  ["write_file", { path: "/texts/a.exe", content: "" }, "SUFFIX_NOT_ALLOWED", "Allowed suffixes: .md"],
  ["write_file", { path: "/texts/a.md", content: "x".repeat(101) }, "FILE_TOO_LARGE", "Largest file allowed there"],
  ["write_file", { path: "/out/a", content: "x", overwrite: false }, "FILE_SYSTEM", "it already exists"],
  ["write_file", { path: "/out/d", content: "x" }, "FILE_SYSTEM", "it is a directory"],
  ["write_file", { path: "/out/a/below", content: "x" }, "FILE_SYSTEM", "not a directory"],
  ["write_file", { path: "/out/link", content: "x" }, "FILE_SYSTEM", "it is a symbolic link"],
  ["write_file", { path: "/docs/new", content: "x" }, "PATH_NOT_WRITABLE", "Writable paths:"],
  ["write_file", { path: "/etc/passwd", content: "x" }, "PATH_NOT_IN_SANDBOX", "Readable paths:"],
  ["write_file", { path: "/shut/s", content: "x" }, "PERMISSION", "blocked"],
  ["append_file", { path: "/texts/n.md", content: "x".repeat(99) }, "FILE_TOO_LARGE", "Largest file allowed there"],
  ["append_file", { path: "/out/d", content: "x" }, "FILE_SYSTEM", "it is a directory"],
  ["edit_file", { path: "/out/a", edits: [{ old: "three", new: "x" }] }, "EDIT", "was not found"],
  ["edit_file", { path: "/out/a", edits: [{ old: "two", new: "x" }] }, "EDIT", "was found 2 times"],
  ["edit_file", { path: "/out/none", edits: [{ old: "a", new: "b" }] }, "NOT_FOUND", "it does not exist"],
  ["edit_file", { path: "/texts/n.md", edits: [{ old: "a", new: "b".repeat(200) }] }, "FILE_TOO_LARGE", "Largest file"],
  ["edit_file", { path: "/out/d", edits: [{ old: "a", new: "b" }] }, "FILE_SYSTEM", "it is a directory"],
  ["delete_file", { path: "/out/box", recursive: true }, "FILE_SYSTEM", "it holds a directory"],
  ["delete_file", { path: "/out/none" }, "NOT_FOUND", "it does not exist"],
  ["delete_file", { path: "/out/d" }, "FILE_SYSTEM", "not empty"],
  ["delete_file", { path: "/out" }, "FILE_SYSTEM", "itself a granted directory"],
  ["delete_file", { path: "/docs/a.txt" }, "PATH_NOT_WRITABLE", "Writable paths:"],
  ["copy_file", { from: "/docs/none", to: "/out/b" }, "NOT_FOUND", "it does not exist"],
  ["copy_file", { from: "/docs/a.txt", to: "/out/a" }, "FILE_SYSTEM", "it already exists"],
  ["copy_file", { from: "/docs/a.txt", to: "/texts/a.txt" }, "SUFFIX_NOT_ALLOWED", "Allowed suffixes: .md"],
  ["copy_file", { from: "/docs/large.md", to: "/texts/l.md" }, "FILE_TOO_LARGE", "Largest file allowed there"],
  ["copy_file", { from: "/out/d", to: "/out/d/inside" }, "FILE_SYSTEM", "cannot be put into itself"],
  ["copy_file", { from: "/out/d", to: "/out/a", overwrite: true }, "FILE_SYSTEM", "it already exists"],
  ["copy_file", { from: "/out/to-d", to: "/out/d/inside" }, "FILE_SYSTEM", "cannot be put into itself"],
  ["copy_file", { from: "/out/box", to: "/out/b" }, "FILE_SYSTEM", "it holds a directory"],
  ["copy_file", { from: "/out/d", to: "/out/free" }, "FILE_SYSTEM", "it holds a directory"],
  ["copy_file", { from: "/out/d2", to: "/out/d3" }, "FILE_SYSTEM", "a symbolic link"],
  ["copy_file", { from: "/out/mixed", to: "/texts/mixed" }, "FILE_TOO_LARGE", "Largest file allowed there"],
  ["copy_file", { from: "/out/kinds", to: "/texts/kinds" }, "SUFFIX_NOT_ALLOWED", "Allowed suffixes: .md"],
  ["move_file", { from: "/out/link", to: "/out/b" }, "FILE_SYSTEM", "it is a symbolic link"],
  ["move_file", { from: "/out", to: "/texts/out" }, "FILE_SYSTEM", "itself a granted directory"],
  ["move_file", { from: "/out/box", to: "/out/b" }, "FILE_SYSTEM", "it holds a directory"],
  ["move_file", { from: "/out/none", to: "/out/b" }, "NOT_FOUND", "it does not exist"],
  ["move_file", { from: "/out/a", to: "/out/a" }, "FILE_SYSTEM", "are the same"],
  ["move_file", { from: "/out/a", to: "/shut/a" }, "PERMISSION", "blocked"],
  ["move_file", { from: "/out/a", to: "/texts/a" }, "SUFFIX_NOT_ALLOWED", "Allowed suffixes: .md"],
  ["move_file", { from: "/texts/n.md", to: "/out/a" }, "FILE_SYSTEM", "it already exists"],
  ["exec", { command: "ls", cwd: "/nowhere" }, "BAD_DIRECTORY", "outside the sandbox"],
  ["exec", { command: "ls", env: { LD_PRELOAD: "/out/x.so" } }, "BAD_ENVIRONMENT", "LD_PRELOAD"],
  ["exec", { command: "ls \0" }, "BAD_INPUT", "NUL"],
];

describe("what a tool cannot do", () => {
  it("is refused before a person is asked, and without a terminal it names what is allowed", async () => {
    const { approver, asked } = person(APPROVED);
    const attended = await open({ person: approver });
    const told = async (s: SessionFixture) => {
      const answers: string[] = [];
      for (const [tool, input] of REFUSED) {
        const result = await s.tool(tool, input);
        answers.push(result.ok ? `${tool} done` : `${tool} ${result.code}: ${result.message}`);
      }
      return answers;
    };
    const expected = REFUSED.map(([tool, , code, says]) =>
      expect.stringMatching(new RegExp(`^${tool} ${code}: [^]*${says.replace(/[()]/g, "\\$&")}`)),
    );
    expect(await told(attended)).toEqual(expected);
    expect(asked).toEqual([]);
    await attended[Symbol.asyncDispose]();
    expect(await told(await open())).toEqual(expected);
  });

  it("is checked again after the answer: what changed in between is refused", async () => {
    let change = async (): Promise<void> => {};
    const { approver } = person(APPROVED, () => change());
    const s = await open({ person: approver });
    const { files } = s.session;
    const staged = async (tool: string, input: unknown, meanwhile: () => Promise<unknown>) => {
      change = async () => void (await meanwhile());
      const result = await s.tool(tool, input);
      return result.ok ? "done" : result.message;
    };
    const write = (path: string, content: string) => () => files.write(path, content);
    const changed = expect.stringContaining("it was changed after it was shown for approval");
    expect(await staged("write_file", { path: "/out/a", content: "new" }, write("/out/a", "other"))).toEqual(changed);
    expect(await staged("write_file", { path: "/out/new", content: "new" }, write("/out/new", "x"))).toEqual(changed);
    const edits = [{ old: "other", new: "o" }];
    expect(await staged("edit_file", { path: "/out/a", edits }, write("/out/a", "other other?"))).toEqual(changed);
    expect(await staged("append_file", { path: "/out/a", content: "b" }, write("/out/a", "evil &&"))).toEqual(changed);
    const copy = { from: "/out/a", to: "/out/copy" };
    expect(await staged("copy_file", copy, write("/out/a", "evil"))).toEqual(changed);
    expect(await staged("copy_file", copy, write("/out/copy", "evil"))).toContain("it already exists");
    expect(await staged("move_file", { ...copy, overwrite: true }, write("/out/a", "worse"))).toEqual(changed);
    expect(await staged("move_file", { ...copy, overwrite: true }, write("/out/copy", "mine"))).toEqual(changed);
    expect(await staged("delete_file", { path: "/out/a" }, write("/out/a", "precious"))).toEqual(changed);
    expect(await files.read("/out/a")).toMatchObject({ content: "precious" });
    expect(await readFile(join(s.project.dir, "out/a"), "utf8")).toBe("one\ntwo\ntwo\n");
  });
});
