import { spawnSync } from "node:child_process";
import fs from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { applyChangeset, type LoggedApplicationOptions } from "../../../src/changes/apply/application.ts";
import type { Change, Changeset } from "../../../src/changes/model/changeset.ts";
import { plant, type StagedFolder, stagedFolder, type Tree, treeAt } from "../staged-folder.ts";

const BEFORE: Tree = {
  "kept.txt": "kept",
  "modified.txt": "old",
  "deleted.txt": "gone soon",
  "folder/deleted.txt": "gone soon",
  link: { link: "kept.txt" },
  "was-file": "a file",
  "was-folder/inner.txt": "inner",
};
const AFTER: Tree = {
  "kept.txt": "kept",
  "modified.txt": "new",
  "created.txt": "fresh",
  "new/deep/created.txt": "deep",
  link: { link: "modified.txt" },
  "new-link": { link: "new/deep" },
  "was-file/now-inner.txt": "now inner",
  "was-folder": "now a file",
};

async function apply(
  staged: StagedFolder,
  options: Partial<LoggedApplicationOptions> & { of?: Changeset; only?: number[] } = {},
) {
  const { of: changeset = staged.changeset(), only, ...rest } = options;
  const which = only ?? changeset.changes.map(({ index }) => index);
  const settled = await applyChangeset(changeset, which, { logDir: staged.logDir, ...rest });
  return settled.map(({ change, outcome, reason }) => ({ path: change.path, kind: change.kind, outcome, reason }));
}

function outcomes(told: Awaited<ReturnType<typeof apply>>): Record<string, string> {
  return Object.fromEntries(told.map(({ path, outcome, reason }) => [path, reason ?? outcome]));
}

/** The one change of a changeset, with something else in it. */
function with_(staged: StagedFolder, over: Partial<Change>): Changeset {
  const changeset = staged.changeset();
  return { ...changeset, changes: changeset.changes.map((change) => ({ ...change, ...over })) };
}

describe("applying a changeset", () => {
  it("makes the directory what the run left, and leaves nothing of its own behind", async () => {
    using staged = stagedFolder(BEFORE, AFTER);
    const told = await apply(staged);
    expect(told.filter(({ outcome }) => outcome !== "applied")).toEqual([]);
    expect(treeAt(staged.target)).toEqual(treeAt(staged.content));
    expect(fs.readdirSync(staged.logDir)).toEqual([]);
  });

  it("applies what was agreed to, and nothing else", async () => {
    using staged = stagedFolder({ a: "old", b: "old" }, { a: "new", b: "new" });
    const of = staged.changeset();
    const [first] = of.changes;
    expect(outcomes(await apply(staged, { of, only: [first?.index ?? -1] }))).toEqual({ "/work/a": "applied" });
    expect(treeAt(staged.target)).toEqual({ a: "new", b: "old" });
  });

  it("gives files the owner, the permission bits and the time that the run left, and no right to run as their owner", async () => {
    using staged = stagedFolder(
      {},
      { "run.sh": { text: "#!/bin/sh", mode: 0o755 }, "dir/s": { text: "s", mode: 0o4755 } },
    );
    if (process.geteuid?.() === 0) fs.chownSync(join(staged.content, "run.sh"), 1234, 1235);
    fs.utimesSync(join(staged.content, "run.sh"), 1e9, 1e9);
    fs.chmodSync(join(staged.content, "dir"), 0o3750);
    await apply(staged);
    const stats = fs.statSync(join(staged.target, "run.sh"));
    expect(stats.mode & 0o7777).toBe(0o755);
    expect(stats.mtimeMs).toBe(1e12);
    if (process.geteuid?.() === 0) expect([stats.uid, stats.gid]).toEqual([1234, 1235]);
    expect(fs.statSync(join(staged.target, "dir/s")).mode & 0o7777).toBe(0o755);
    expect(fs.statSync(join(staged.target, "dir")).mode & 0o7777).toBe(0o750);
  });

  it("gives a link the owner that the run's has, and not what it leads to", async (context) => {
    if (process.geteuid?.() !== 0) return context.skip("only root can give links away");
    using staged = stagedFolder({ file: "f" }, { file: "f", link: { link: "file" } });
    fs.lchownSync(join(staged.content, "link"), 1234, 1235);
    await apply(staged);
    expect(fs.lstatSync(join(staged.target, "link")).uid).toBe(1234);
    expect(fs.statSync(join(staged.target, "file")).uid).toBe(0);
  });

  it("keeps the holes of a file", async () => {
    using staged = stagedFolder({}, { sparse: "head" });
    fs.truncateSync(join(staged.content, "sparse"), 64 * 1024 ** 2);
    await apply(staged);
    const stats = fs.statSync(join(staged.target, "sparse"));
    expect(stats.size).toBe(64 * 1024 ** 2);
    expect(stats.blocks * 512).toBeLessThan(1024 ** 2);
  });

  it("changes the permission bits of a directory, and keeps those that only its owner can mean", async () => {
    using staged = stagedFolder({ dir: null }, { dir: null });
    fs.chmodSync(join(staged.target, "dir"), 0o2770);
    const facts = { type: "directory", size: 0, mtimeNs: "0", ctimeNs: "0" } as const;
    const base = { ...facts, inode: String(fs.statSync(join(staged.target, "dir")).ino), mode: 0o2770 };
    const about = { index: 0, mount: 0, parts: ["dir"], path: "/work/dir" as Change["path"], refusal: null };
    const change: Change = { ...about, kind: "modify", type: "directory", base, next: { ...base, mode: 0o5705 } };
    expect(outcomes(await apply(staged, { of: { ...staged.changeset(), changes: [change] } }))).toEqual({
      "/work/dir": "applied",
    });
    expect(fs.statSync(join(staged.target, "dir")).mode & 0o7777).toBe(0o2705);
  });

  it("does not start what it had no time for, and says so", async () => {
    using staged = stagedFolder({}, Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`f${i}`, "x"])));
    const stop = new AbortController();
    const told = await apply(staged, {
      signal: stop.signal,
      onStep: (step) => step === "put 3" && stop.abort(),
    });
    const applied = told.filter(({ outcome }) => outcome === "applied").length;
    expect(applied).toBeGreaterThan(0);
    expect(applied).toBeLessThan(200);
    expect(told.filter(({ outcome }) => outcome === "held")).toHaveLength(200 - applied);
    expect(Object.keys(treeAt(staged.target))).toHaveLength(applied);
  });
});

describe("a file system that was mounted inside since the run began", () => {
  it.for<[string, (mounted: string) => void]>([
    ["that is empty", () => {}],
    ["that has the same directory", (mounted) => fs.mkdirSync(join(mounted, "folder"))],
    ["that has a link in its place", (mounted) => fs.symlinkSync("..", join(mounted, "folder"))],
  ])("refuses every change below it, also one %s", async ([, fill], context) => {
    using staged = stagedFolder({ "mnt/folder/gone": "g", "mnt/folder/old": "o" }, { "mnt/folder/old": "new" });
    const of = staged.changeset();
    const mounted = join(staged.target, "mnt");
    if (spawnSync("mount", ["-t", "tmpfs", "none", mounted]).status !== 0) return context.skip("no right to mount");
    try {
      fill(mounted);
      const reason = "another file system is mounted there";
      const verdicts = (await apply(staged, { of })).map(({ kind, outcome, reason }) => ({ kind, outcome, reason }));
      expect(verdicts).toEqual(["modify", "delete"].map((kind) => ({ kind, outcome: "refused", reason })));
    } finally {
      spawnSync("umount", [mounted]);
    }
  });
});

describe("what somebody else changed since the run began", () => {
  const CHANGED = "it was changed since the run began";

  it.each<[string, Tree, Tree, (target: string) => void, string]>([
    ["a file with other content", { f: "old" }, { f: "new" }, (t) => fs.writeFileSync(join(t, "f"), "theirs"), CHANGED],
    [
      "a file with other content of the same size and time",
      { f: "old" },
      { f: "new" },
      (t) => {
        const { atime, mtime } = fs.statSync(join(t, "f"));
        fs.writeFileSync(join(t, "f"), "THE");
        fs.utimesSync(join(t, "f"), atime, mtime);
      },
      CHANGED,
    ],
    ["a file that was replaced", { f: "old" }, { f: "new" }, replaceFile, CHANGED],
    [
      "a file that is gone",
      { f: "old" },
      { f: "new" },
      (t) => fs.rmSync(join(t, "f")),
      "it was deleted since the run began",
    ],
    ["a deleted file that was changed", { f: "old" }, {}, (t) => fs.appendFileSync(join(t, "f"), "theirs"), CHANGED],
    [
      "a deleted file that is gone",
      { f: "old" },
      {},
      (t) => fs.rmSync(join(t, "f")),
      "it was deleted since the run began",
    ],
    [
      "a name that is taken",
      {},
      { f: "new" },
      (t) => fs.writeFileSync(join(t, "f"), "x"),
      "another entry of that name was created since the run began",
    ],
    [
      "a name that a directory took",
      {},
      { f: "new" },
      (t) => fs.mkdirSync(join(t, "f")),
      "another entry of that name was created since the run began",
    ],
    [
      "a directory's name that a file took",
      {},
      { d: null },
      (t) => fs.writeFileSync(join(t, "d"), "theirs"),
      "another entry of that name was created since the run began",
    ],
    [
      "a deleted directory that is not empty any more",
      { d: null },
      {},
      (t) => fs.writeFileSync(join(t, "d/theirs"), "theirs"),
      "it is no longer empty",
    ],
    [
      "a link that leads elsewhere",
      { l: { link: "a" } },
      { l: { link: "b" } },
      (t) => {
        fs.rmSync(join(t, "l"));
        fs.symlinkSync("theirs", join(t, "l"));
      },
      CHANGED,
    ],
  ])("is never overwritten: %s", async (_, before, after, meddle, reason) => {
    using staged = stagedFolder(before, after);
    const of = staged.changeset();
    // The kernel's clock for files goes in steps of some milliseconds.
    await sleep(20);
    meddle(staged.target);
    const theirs = treeAt(staged.target);
    const told = await apply(staged, { of });
    expect(told.map((one) => [one.outcome, one.reason])).toEqual([["conflict", reason]]);
    expect(treeAt(staged.target)).toEqual(theirs);
  });

  it("does not matter where a directory is there already, and may hold what others put there", async () => {
    using staged = stagedFolder({}, { "d/f": "ours" });
    const of = staged.changeset();
    plant(staged.target, { "d/theirs": "theirs" });
    expect(outcomes(await apply(staged, { of }))).toEqual({ "/work/d": "applied", "/work/d/f": "applied" });
    expect(treeAt(staged.target)).toEqual({ d: null, "d/f": "ours", "d/theirs": "theirs" });
  });

  it("stops what would stand in a directory that is not there", async () => {
    using staged = stagedFolder({ d: null }, { "d/f": "ours" });
    const of = staged.changeset();
    fs.rmdirSync(join(staged.target, "d"));
    expect(outcomes(await apply(staged, { of }))).toEqual({ "/work/d/f": "its parent directory does not exist" });
  });

  it("stops all where the directory itself is another one by now", async () => {
    using staged = stagedFolder({}, { f: "ours" });
    const of = staged.changeset();
    fs.renameSync(staged.target, `${staged.target}-away`);
    fs.mkdirSync(staged.target);
    expect(outcomes(await apply(staged, { of }))).toEqual({
      "/work/f": "its directory was replaced since the run began",
    });
    expect(treeAt(staged.target)).toEqual({});
  });
});

describe("what must not be applied", () => {
  it("is refused by the words of the scan, whoever agreed", async () => {
    using staged = stagedFolder({}, { f: "ours" });
    const of = with_(staged, { refusal: "files of this kind are not allowed there" });
    expect(outcomes(await apply(staged, { of }))).toEqual({ "/work/f": "files of this kind are not allowed there" });
    expect(treeAt(staged.target)).toEqual({});
  });

  it("is a file that is too large, by itself or with the others", async () => {
    using staged = stagedFolder({}, { a: "12345", b: "1234", c: "123" });
    expect(outcomes(await apply(staged, { limits: { fileBytes: 4, totalBytes: 5 } }))).toEqual({
      "/work/a": "it has 5 bytes, and at most 4 bytes are allowed",
      "/work/b": "applied",
      "/work/c": "with this change, more than 5 bytes would be written",
    });
  });

  it("is a change that contradicts itself", async () => {
    using staged = stagedFolder({}, { f: "ours" });
    const reason = "its record is inconsistent";
    for (const over of [{ mount: 7 }, { next: null }, { type: "link" }, { kind: "delete" }] as const)
      expect(Object.values(outcomes(await apply(staged, { of: with_(staged, over) })))).toEqual([reason]);
    expect(treeAt(staged.target)).toEqual({});
  });

  it("tells what failed in words that name no place of the host", async () => {
    using staged = stagedFolder({ d: null }, { "d/f": "ours", g: "ours" });
    const of = staged.changeset();
    fs.rmdirSync(join(staged.target, "d"));
    fs.writeFileSync(join(staged.target, "d"), "theirs");
    const told = JSON.stringify(await apply(staged, { of }));
    expect(told).not.toContain(staged.path);
    expect(told).not.toContain("/proc");
  });
});

function replaceFile(target: string): void {
  fs.writeFileSync(join(target, "other"), "old");
  fs.renameSync(join(target, "other"), join(target, "f"));
}
