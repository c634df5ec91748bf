import fs from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { changesetDiff, DIFF_LIMITS } from "../../src/changes/diff.ts";
import type { Changeset } from "../../src/changes/model/changeset.ts";
import { textDiff } from "../../src/files/diff/text-diff.ts";
import { stagedFolder, type Tree } from "./staged-folder.ts";

async function diffOf(before: Tree, after: Tree, over: Partial<typeof DIFF_LIMITS> = {}): Promise<string[]> {
  using staged = stagedFolder(before, after);
  return await linesOf(staged.changeset(), over);
}

async function linesOf(changeset: Changeset, over: Partial<typeof DIFF_LIMITS> = {}): Promise<string[]> {
  return (await changesetDiff(changeset, { ...DIFF_LIMITS, ...over })).split("\n");
}

it("shows text as a unified diff, with virtual paths", async () => {
  expect(await diffOf({ "a.txt": "one\ntwo\nthree\n" }, { "a.txt": "one\n2\nthree\n", "new/b.txt": "fresh" })).toEqual([
    "create directory /work/new",
    "--- /work/a.txt",
    "+++ /work/a.txt",
    "@@ -1,3 +1,3 @@",
    " one",
    "-two",
    "+2",
    " three",
    "--- /dev/null",
    "+++ /work/new/b.txt",
    "@@ -0,0 +1,1 @@",
    "+fresh",
    "\\ No newline at end of file",
  ]);
});

it("tells of everything else in one line", async () => {
  const lines = await diffOf(
    {
      gone: "x",
      "empty-dir": null,
      bin: "a\0b",
      l: { link: "a" },
      "run.sh": { text: "#!/bin/sh\n", mode: 0o644 },
      t: "f",
    },
    {
      bin: "a\0bc",
      l: { link: "b" },
      "run.sh": { text: "#!/bin/sh\n", mode: 0o755 },
      new: { text: "", mode: 0o755 },
      t: null,
    },
  );
  expect(lines).toEqual([
    "delete /work/t",
    "create directory /work/t",
    "modify /work/bin (binary, 3 bytes -> 4 bytes)",
    "modify link /work/l -> b",
    "create /work/new, mode 755",
    "modify /work/run.sh, mode 644 -> 755",
    "delete directory /work/empty-dir",
    "delete /work/gone",
  ]);
});

it("lets neither a name nor a text say more than it is", async () => {
  const name = "a\n+++ b \u001b[2K\u202e";
  const lines = await diffOf({}, { [name]: "\u001b[31mred\u001b[0m\ttab\r\nnext\u2028line\n", l: { link: "x y\nz" } });
  expect(lines).toEqual([
    "--- /dev/null",
    '+++ "/work/a\\u{a}+++ b \\u{1b}[2K\\u{202e}"',
    "@@ -0,0 +1,2 @@",
    "+\\u{1b}[31mred\\u{1b}[0m\ttab\\u{d}",
    "+next\\u{2028}line",
    'create link /work/l -> "x y\\u{a}z"',
  ]);
});

it("marks what cannot be applied, and does not show it", async () => {
  using staged = stagedFolder({ a: "old", b: "old" }, { a: "new", b: "new", c: "new" });
  const changeset = staged.changeset();
  fs.rmSync(join(staged.target, "a"));
  fs.writeFileSync(join(staged.target, "c"), "theirs");
  const changes = changeset.changes.map((one) => (one.path === "/work/b" ? { ...one, refusal: "too large" } : one));
  expect(await linesOf({ ...changeset, changes })).toEqual([
    "conflict: modify /work/a: it was deleted since the run began",
    "refused: modify /work/b: too large",
    "conflict: create /work/c: another entry of that name was created since the run began",
  ]);
});

it("is bounded for each file, in all, in what it reads and in the number of changes", async () => {
  const after = { a: "12345\n", b: "123\n", c: "456\n", d: "7\n" };
  expect(await diffOf({}, after, { fileBytes: 5 })).toContain("create /work/a (6 bytes; too large to show)");
  expect(await diffOf({}, after, { totalBytes: 80 })).toContain("create /work/d (2 bytes; not shown)");
  expect(await diffOf({}, after, { readBytes: 12 })).toContain("create /work/c (4 bytes; not shown)");
  expect((await diffOf({}, after, { changes: 3 })).at(-1)).toBe("1 more changes are not shown");
});

it("shows fewer changes of a file with very many lines, so that no other work waits for it", () => {
  const isShown = (lines: number, edits: number): boolean => {
    const [old, now] = ["", "x"].map((end) =>
      Array.from({ length: lines }, (_, at) => `${at}${at < edits ? end : ""}`),
    );
    return textDiff(Buffer.from((old ?? []).join("\n")), Buffer.from((now ?? []).join("\n"))) !== null;
  };
  // A changed line is two edits: one goes, one comes.
  expect([isShown(20_000, 500), isShown(20_001, 250), isShown(20_001, 251), isShown(600, 501)]).toEqual([
    true,
    true,
    false,
    false,
  ]);
});

it("does not take long where every line is another one", async () => {
  const text = (letter: string): string => Array.from({ length: 40_000 }, (_, i) => `${letter}${i}`).join("\n");
  expect(await diffOf({ a: text("a") }, { a: text("b") }, { fileBytes: 1024 ** 2 })).toEqual([
    expect.stringMatching(/^modify \/work\/a \(\d+ bytes -> \d+ bytes; changed too much to show\)$/),
  ]);
});
