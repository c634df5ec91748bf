import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import fs from "node:fs";
import { dirname, join } from "node:path";
import { deflateSync } from "node:zlib";
import { expect, it } from "vitest";
import { commitTexts } from "../../src/changes/commits.ts";
import { changesetDiff } from "../../src/changes/diff.ts";
import { only } from "../../src/changes/model/changeset.ts";
import { type StagedFolder, stagedFolder } from "./staged-folder.ts";

const WHO = "Ada <ada@example.org>";
const HEADING = "the worker used git in /work/.git: subjects, names and dates of commits are its own word";

/** A repository with one commit, and the same as the worker has it. */
function repository(...init: readonly string[]): StagedFolder {
  const staged = stagedFolder({}, {});
  git(staged.target, "init", "-q", "-b", "main", ...init);
  commit(staged.target, "first", { a: "a", "deep/b": "b", "deep/kept": "kept" });
  fs.cpSync(staged.target, staged.content, { recursive: true, preserveTimestamps: true });
  return staged;
}

function git(at: string, ...args: readonly string[]): string {
  const env = {
    ...{ PATH: process.env.PATH, HOME: "/nonexistent", GIT_CONFIG_NOSYSTEM: "1" },
    ...{ GIT_AUTHOR_NAME: "Ada", GIT_AUTHOR_EMAIL: "ada@example.org" },
    ...{ GIT_COMMITTER_NAME: "Ada", GIT_COMMITTER_EMAIL: "ada@example.org" },
  };
  return execFileSync("git", ["-C", at, "-c", "gc.auto=0", ...args], { env, encoding: "utf8" }).trim();
}

/** The short hash. */
function commit(at: string, subject: string, files: Readonly<Record<string, string>>): string {
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(dirname(join(at, name)), { recursive: true });
    fs.writeFileSync(join(at, name), text);
  }
  git(at, "add", "-A");
  git(at, "commit", "-q", "--allow-empty", "-m", subject);
  return git(at, "rev-parse", "HEAD").slice(0, 7);
}

/** Puts an object there by its own hash, or by another one. */
function put(at: string, type: string, content: string | Buffer, as?: string): string {
  const object = Buffer.concat([Buffer.from(`${type} ${Buffer.byteLength(content)}\0`), Buffer.from(content)]);
  const hash = as ?? createHash("sha1").update(object).digest("hex");
  write(at, hash, deflateSync(object));
  return hash;
}

function write(at: string, hash: string, bytes: Uint8Array): void {
  const path = join(at, ".git/objects", hash.slice(0, 2), hash.slice(2));
  fs.mkdirSync(dirname(path), { recursive: true });
  fs.writeFileSync(path, bytes);
}

function branch(at: string, name: string, value: string): void {
  fs.mkdirSync(dirname(join(at, ".git/refs/heads", name)), { recursive: true });
  fs.writeFileSync(join(at, ".git/refs/heads", name), value);
}

const TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
const text = (message: string, parents: readonly string[] = [], who = WHO): string =>
  [
    `tree ${TREE}`,
    ...parents.map((one) => `parent ${one}`),
    ...[`author ${who} 1 +0000`, `committer ${WHO} 1 +0000`, "", message],
  ].join("\n");
const told = (staged: StagedFolder): string[] => commitTexts(staged.changeset());

it.each([[[]], [["--object-format=sha256"]]])("tells the commits of a worker, the latest first: %j", async (init) => {
  using staged = repository(...init);
  const at = staged.content;
  const second = commit(at, "second\n\nand more", { a: "changed", "deep/b": "changed", "deep/c/d": "new" });
  git(at, "checkout", "-q", "-b", "topic");
  const third = commit(at, "third", { e: "e" });
  expect(told(staged)).toEqual([
    HEADING,
    `commit ${second} "second" by "${WHO}" on branch main, 3 files changed`,
    `commit ${third} "third" by "${WHO}" on branch topic, 1 file changed`,
    "HEAD now names branch topic",
    expect.stringMatching(/^and \d+ files of git's own among the changes: .*9 objects/),
  ]);
  expect((await changesetDiff(staged.changeset())).split("\n").slice(0, 3)).toEqual(told(staged).slice(0, 3));
});

it("counts exactly the files of git's own, and leaves none out of the diff", async () => {
  using staged = repository();
  commit(staged.content, "second", { b: "b" });
  const changeset = staged.changeset();
  const own = changeset.changes.filter(({ path, type }) => path.startsWith("/work/.git/") && type === "file");
  expect(told(staged).at(-1)).toMatch(new RegExp(`^and ${own.length} files of git's own`));
  const lines = await changesetDiff(changeset);
  for (const { path } of own) expect(lines).toContain(path);
});

it("tells of a part what lies in the whole, and says nothing without git", () => {
  using staged = repository();
  const second = commit(staged.content, "second", { b: "b" });
  const whole = staged.changeset();
  const ref = whole.changes.filter(({ path }) => path.endsWith("/refs/heads/main")).map(({ index }) => index);
  expect(commitTexts(only(whole, new Set(ref)), whole)[1]).toContain(`commit ${second} "second"`);
  using plain = stagedFolder({}, { HEAD: "ref: refs/heads/main", "refs/heads/x": "y", "a.git": "z" });
  expect(told(plain)).toEqual([]);
});

it("says what it does not show: packed objects, and commits that were there before", () => {
  using staged = repository();
  const second = commit(staged.content, "second", { b: "b" });
  git(staged.content, "gc", "-q");
  git(staged.content, "branch", "kept");
  const texts = told(staged);
  expect(texts).toContain("the file of branch main is deleted");
  expect(texts).toContain(`branch kept now names ${second}, which is not shown: it is packed, or was there before`);
  expect(texts).toContain("the file of packed refs is changed");
  expect(texts.at(-1)).toMatch(/pack files/);
  using moved = repository();
  git(moved.content, "branch", "other");
  const first = git(moved.content, "rev-parse", "HEAD").slice(0, 7);
  expect(told(moved)[1]).toBe(`branch other now names ${first}, which is not shown: it is packed, or was there before`);
});

it("lets no text of a commit or a branch be taken for other words", () => {
  using staged = repository();
  const at = staged.content;
  const who = 'Bob" on branch main \u202e <b@x>';
  branch(at, "a, 0 files changed\u001b[2K", put(at, "commit", text('fix" by "X\u202e\u001b[1A\nrest', [], who)));
  const [, line = ""] = told(staged);
  expect(line.slice(15)).toBe(
    '"fix\\" by \\"X\\u{202e}\\u{1b}[1A" by "Bob\\" on branch main \\u{202e} <b@x>", committed by ' +
      `"${WHO}" on branch "a, 0 files changed\\u{1b}[2K", its files are not shown`,
  );
});

it("reads no object that is too large, is not what its name says, or is none", () => {
  using staged = repository();
  const at = staged.content;
  const [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map((one) => one.repeat(40)) as [
    string,
    string,
    string,
    string,
    string,
  ];
  put(at, "commit", text("forged"), a);
  write(at, b, deflateSync(Buffer.alloc(64 * 1024 ** 2)));
  write(at, c, Buffer.alloc(2 * 1024 ** 2));
  write(at, d, Buffer.from("no object"));
  const all = { a, b, c, d };
  for (const [name, hash] of Object.entries(all)) branch(at, name, `${hash}\n`);
  const large = put(
    at,
    "commit",
    text("x").replace("\n\n", `\n${"x".repeat(800_000)}\n ${"y\n ".repeat(50_000)}z\n\n`),
  );
  const parents = put(at, "commit", text("many", Array(15_000).fill(a)));
  const blob = put(at, "blob", text("a blob"));
  for (const [name, hash] of Object.entries({ large, parents, blob })) branch(at, name, hash);
  branch(at, "huge", e.repeat(1000_000));
  fs.symlinkSync("/etc/passwd", join(at, ".git/refs/heads/link"));
  const texts = told(staged);
  const unread = (hash: string, name: string) =>
    `commit ${hash.slice(0, 7)} on branch ${name}, which cannot be read as a commit`;
  expect(texts).toEqual(
    expect.arrayContaining([
      ...Object.entries({ ...all, blob }).map(([name, hash]) => unread(hash, name)),
      `commit ${large.slice(0, 7)} "x" by "${WHO}" on branch large, its files are not shown`,
      `merge commit ${parents.slice(0, 7)} "many" by "${WHO}" on branch parents, its files are not shown`,
      "branch huge names no commit that can be read",
      "branch link names no commit that can be read",
    ]),
  );
});

it("ends at loops and long histories, and counts what is left", () => {
  using staged = repository();
  const at = staged.content;
  // A commit cannot name itself, so a loop has a forged name.
  const forged = "f".repeat(40);
  put(at, "commit", text("loop", [forged]), forged);
  let tip = forged;
  for (let count = 0; count < 30; count += 1) tip = put(at, "commit", text(`n${count}`, [tip, tip]));
  branch(at, "long", tip);
  for (let count = 0; count < 30; count += 1) branch(at, `many/${count}`, "x");
  const texts = told(staged);
  expect(texts.filter((line) => line.includes("commit "))).toHaveLength(20 + 20);
  expect(texts).toContain("and 11 more commits");
  expect(texts).toContain("and 10 more refs");
});

it("reads a tree of trees that names itself thousands of times only within its bounds", () => {
  using staged = repository();
  const at = staged.content;
  let tree = put(at, "tree", "");
  for (let level = 0; level < 20; level += 1) {
    const entry = (name: number) => Buffer.concat([Buffer.from(`40000 ${name}\0`), Buffer.from(tree, "hex")]);
    tree = put(at, "tree", Buffer.concat(Array.from({ length: 50 }, (_, name) => entry(name))));
  }
  branch(at, "bomb", put(at, "commit", text("bomb").replace(TREE, tree)));
  expect(told(staged)[1]).toMatch(/"bomb" by .* on branch bomb, its files are not shown$/);
});
