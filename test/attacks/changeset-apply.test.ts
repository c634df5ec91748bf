import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { applyChangeset, temporaryName } from "../../src/changes/apply/application.ts";
import type { Settled } from "../../src/changes/apply/fitness.ts";
import { changesetDiff } from "../../src/changes/diff.ts";
import { type Change, type Changeset, factsOf } from "../../src/changes/model/changeset.ts";
import type { VirtualPath } from "../../src/sandbox/virtual-path.ts";
import { plant, type StagedFolder, stagedFolder, type Tree, treeAt } from "../changes/staged-folder.ts";
import { AT_LENGTH } from "../tiers/at-length.ts";

const CANARY = "CANARY: nobody may read or change this";
/** What stands outside of the directory that changes are applied to, where planted links lead. */
const OUTSIDE: Tree = { canary: CANARY, "sub/canary": CANARY, f: CANARY };

let outside: StagedFolder;

beforeEach(() => {
  outside = stagedFolder(OUTSIDE, {});
});

afterEach(() => {
  const now = treeAt(outside.target);
  outside[Symbol.dispose]();
  expect(now).toEqual({ ...OUTSIDE, sub: null });
});

async function apply(
  staged: StagedFolder,
  changeset: Changeset,
  onStep?: (step: string) => void,
): Promise<readonly Settled[]> {
  const which = changeset.changes.map(({ index }) => index);
  return await applyChangeset(changeset, which, { logDir: staged.logDir, onStep });
}

const outcomesOf = (settled: readonly Settled[]): string[] => settled.map(({ outcome }) => outcome);

describe("a directory in which others swap things while changes are applied", () => {
  it("leads nothing outside, in thousands of tries", { timeout: 300_000 }, async () => {
    using staged = stagedFolder(
      { file: "theirs", "folder/canary": "theirs", "outer/inner/canary": "theirs" },
      Object.fromEntries(
        ["folder", "outer/inner"].flatMap((dir) => ["canary", "f"].map((f) => [`${dir}/${f}`, "ours"])),
      ),
    );
    plant(staged.content, { file: "ours" });
    const changeset = staged.changeset();
    const script = join(import.meta.dirname, "flipper.ts");
    const flipper = spawn(process.execPath, [script, staged.target, outside.target], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const gone = once(flipper, "exit");
    await once(flipper.stdout, "data");
    const seen = new Map<string, number>();
    try {
      for (let round = 0; round < (AT_LENGTH ? 1500 : 250); round++) {
        for (const { outcome, reason } of await apply(staged, asItStands(staged, changeset)))
          seen.set(reason ?? outcome, (seen.get(reason ?? outcome) ?? 0) + 1);
      }
    } finally {
      flipper.kill("SIGKILL");
      await gone;
    }
    // Both were met, so the race took place.
    expect(seen.get("applied")).toBeGreaterThan(0);
    expect(seen.get("a link or a file is in the place of one of its parent directories")).toBeGreaterThan(0);
  });

  it("leads nothing outside, whenever a directory on the way becomes a link", async () => {
    const steps = await stepsOf(BEFORE, AFTER);
    for (const swapAt of steps.keys()) {
      for (const name of ["folder", "outer"]) {
        using staged = stagedFolder(BEFORE, AFTER);
        const changeset = staged.changeset();
        let step = 0;
        await apply(staged, changeset, () => {
          if (step++ !== swapAt || !fs.existsSync(join(staged.target, name))) return;
          fs.renameSync(join(staged.target, name), join(staged.path, "away"));
          fs.symlinkSync(outside.target, join(staged.target, name));
        });
        expect(treeAt(outside.target)).toEqual({ ...OUTSIDE, sub: null });
      }
    }
  });

  it("leads nothing outside when all of it becomes a link", async () => {
    using staged = stagedFolder({}, { f: "ours", canary: "ours" });
    const changeset = staged.changeset();
    fs.rmdirSync(staged.target);
    fs.symlinkSync(outside.target, staged.target);
    expect(outcomesOf(await apply(staged, changeset))).toEqual(["refused", "refused"]);
  });
});

const BEFORE: Tree = { "folder/f": "old", "folder/canary": "old", "outer/sub/canary": "old", "outer/f": "old" };
const AFTER: Tree = { "folder/f": "new", "folder/new/f": "new", "outer/sub/l": { link: "canary" }, "outer/f": "new" };

describe("the name of a temporary file", () => {
  const plants: readonly [string, (path: string) => void][] = [
    ["a link to a file", (path) => fs.symlinkSync(join(outside.target, "canary"), path)],
    ["a link to a directory", (path) => fs.symlinkSync(outside.target, path)],
    ["a hard link", (path) => fs.linkSync(join(outside.target, "canary"), path)],
    ["a FIFO", (path) => void execFileSync("mkfifo", [path])],
    ["a directory that is not empty", (path) => plant(path, { f: "theirs" })],
  ];

  it.each(plants)("can be taken by %s, before anything is made or before it is put in place", async (_, put) => {
    const tries = [
      { after: { f: "ours" }, steps: ["make 0", "note what is ready", "put 0"] },
      { after: { l: { link: "x" } }, steps: ["make 0", "note what is ready", "put 0"] },
      { after: { d: null }, steps: ["make 0", "note what is ready", "put 0"] },
    ];
    for (const { after, steps } of tries) {
      for (const at of steps) {
        using staged = stagedFolder({}, after);
        const settled = await apply(staged, staged.changeset(), (step) => {
          if (step !== at) return;
          const path = join(staged.target, temporaryName(tokenOf(staged), 0));
          fs.rmSync(path, { recursive: true, force: true });
          put(path);
        });
        expect(outcomesOf(settled)).not.toContain("applied");
        expect(treeAt(outside.target)).toEqual({ ...OUTSIDE, sub: null });
        expect(fs.statSync(join(outside.target, "canary")).uid).toBe(process.geteuid?.());
      }
    }
  });

  it("cannot be guessed", async () => {
    using staged = stagedFolder({}, { f: "ours" });
    const tokens = new Set<string>();
    const changeset = staged.changeset();
    for (let round = 0; round < 3; round++) {
      await apply(staged, changeset, (step) => step === "make 0" && tokens.add(tokenOf(staged)));
      fs.rmSync(join(staged.target, "f"));
    }
    expect(tokens.size).toBe(3);
  });
});

describe("what a run left", () => {
  const meddling: readonly [string, (path: string) => void][] = [
    ["written to, with the same size and time", (path) => writeLike(path, "EVIL")],
    ["replaced", (path) => replace(path, () => fs.writeFileSync(path, "EVIL"))],
    ["replaced by a link", (path) => replace(path, () => fs.symlinkSync(join(outside.target, "canary"), path))],
    ["replaced by a FIFO", (path) => replace(path, () => execFileSync("mkfifo", [path]))],
    ["replaced by a directory", (path) => replace(path, () => fs.mkdirSync(path))],
    ["removed", (path) => fs.rmSync(path)],
  ];

  it.each(meddling)("is refused where it was %s since it was looked at", async (_, meddle) => {
    using staged = stagedFolder({ "dir/f": "before" }, { "dir/f": "ours", "dir/g": "ours" });
    const changeset = staged.changeset();
    await new Promise((resolve) => setTimeout(resolve, 20));
    for (const name of ["f", "g"]) meddle(join(staged.content, "dir", name));
    expect(outcomesOf(await apply(staged, changeset))).toEqual(["refused", "refused"]);
    expect(treeAt(staged.target)).toEqual({ dir: null, "dir/f": "before" });
    expect(await changesetDiff(changeset)).not.toContain("EVIL");
  });

  it("is reached through no link", async () => {
    using staged = stagedFolder({ dir: null }, { "dir/canary": CANARY });
    const changeset = staged.changeset();
    fs.renameSync(join(staged.content, "dir"), join(staged.path, "away"));
    fs.symlinkSync(join(staged.path, "away"), join(staged.content, "dir"));
    expect(outcomesOf(await apply(staged, changeset))).toEqual(["refused"]);
  });

  it("shares nothing with the directory, were it linked twice", async () => {
    using staged = stagedFolder({ a: "old" }, { a: "ours" });
    fs.linkSync(join(staged.content, "a"), join(staged.content, "b"));
    fs.linkSync(join(staged.target, "a"), join(staged.path, "another-name"));
    expect(outcomesOf(await apply(staged, staged.changeset()))).toEqual(["applied", "applied"]);
    fs.appendFileSync(join(staged.content, "a"), " and more");
    expect(treeAt(staged.target)).toEqual({ a: "ours", b: "ours" });
    expect(fs.statSync(join(staged.target, "a")).nlink).toBe(1);
    expect(fs.readFileSync(join(staged.path, "another-name"), "utf8")).toBe("old");
  });

  it("is not materialised where it is a hole of a terabyte", async () => {
    using staged = stagedFolder({}, { huge: "x", small: "x" });
    fs.truncateSync(join(staged.content, "huge"), 1024 ** 4);
    const changeset = staged.changeset();
    expect(await changesetDiff(changeset)).toContain("create /work/huge (1099511627776 bytes; too large to show)");
    expect(outcomesOf(await apply(staged, changeset))).toEqual(["refused", "applied"]);
    expect(fs.readdirSync(staged.target)).toEqual(["small"]);
  });
});

describe("a record that lies", () => {
  it.each([
    [["..", "outside"]],
    [["..", "..", "..", "etc", "cron.d", "x"]],
    [["a", "..", "..", "f"]],
    [["/etc/x"]],
    [["a/../../f"]],
    [["."]],
    [[""]],
    [[]],
    [["f\0g"]],
    [["\ud800"]],
    [["x".repeat(256)]],
    [Array(300).fill("d")],
  ])("leads nowhere with the parts %j", async (parts: string[]) => {
    using staged = stagedFolder({}, { f: "ours" });
    const changeset = with_(staged.changeset(), { parts });
    expect(outcomesOf(await apply(staged, changeset))).toEqual(["refused"]);
    expect(treeAt(staged.path)).toMatchObject({ target: null });
    expect(fs.readdirSync(staged.target)).toEqual([]);
  });

  it.each(["/etc/passwd", "../canary", "sub/../../x", "..", ""])("makes no link to %j", async (linkText) => {
    using staged = stagedFolder({}, { l: { link: "fine" } });
    expect(outcomesOf(await apply(staged, with_(staged.changeset(), { linkText })))).toEqual(["refused"]);
    expect(fs.readdirSync(staged.target)).toEqual([]);
  });

  it("changes nothing at, below or on the way to a closed path", async () => {
    const before = { "own/corral.yaml": "theirs", "own/w/x.worker": "theirs", "way/closed/f": "theirs" };
    using staged = stagedFolder(before, { "own/corral.yaml": "ours", "own/w/new": "ours", way: "now a file" });
    const changeset = staged.changeset();
    const closed = ["/work/own/corral.yaml", "/work/own/w", "/work/way/closed"] as VirtualPath[];
    const mounts = changeset.mounts.map((mount) => ({ ...mount, closed }));
    const settled = await apply(staged, { ...changeset, mounts });
    expect(settled.length).toBeGreaterThan(5);
    expect(outcomesOf(settled)).not.toContain("applied");
    expect(treeAt(staged.target)).toMatchObject(before);
  });
});

describe("what stands in the way", () => {
  it("is no FIFO that anybody waits at", async () => {
    using staged = stagedFolder({ f: "old", g: "old" }, { f: "new", new: "new" });
    const changeset = staged.changeset();
    for (const name of ["f", "g"]) fs.rmSync(join(staged.target, name));
    for (const name of ["f", "g", "new"]) execFileSync("mkfifo", [join(staged.target, name)]);
    expect(await changesetDiff(changeset)).toContain("conflict: modify /work/f: it was changed since the run began");
    expect(outcomesOf(await apply(staged, changeset))).toEqual(["conflict", "conflict", "conflict"]);
    for (const name of ["f", "g", "new"]) expect(fs.lstatSync(join(staged.target, name)).isFIFO()).toBe(true);
  });

  it("is not written through, be it a link to outside", async () => {
    using staged = stagedFolder({ f: "old", canary: "old" }, { f: "new", sub: null });
    const changeset = staged.changeset();
    for (const name of ["f", "canary"]) fs.rmSync(join(staged.target, name));
    for (const name of ["f", "canary", "sub"]) fs.symlinkSync(join(outside.target, name), join(staged.target, name));
    expect(outcomesOf(await apply(staged, changeset))).toEqual(["conflict", "conflict", "conflict"]);
  });
});

it("applies thousands of tiny files with few descriptors", { timeout: 300_000 }, async () => {
  // As many as a run may bring back, or as show that descriptors are given back.
  const count = AT_LENGTH ? 50_000 : 2000;
  using staged = stagedFolder({}, {});
  for (let folder = 0; folder < 50; folder++) fs.mkdirSync(join(staged.content, `d${folder}`));
  for (let file = 0; file < count; file++) fs.writeFileSync(join(staged.content, `d${file % 50}/f${file}`), "x");
  const changeset = staged.changeset();
  let most = 0;
  const settled = await apply(staged, changeset, (step) => {
    if (step === "note what is ready") most = Math.max(most, fs.readdirSync("/proc/self/fd").length);
  });
  expect(new Set(outcomesOf(settled))).toEqual(new Set(["applied"]));
  expect(settled).toHaveLength(count + 50);
  expect(most).toBeLessThan(300);
  expect(fs.readdirSync(join(staged.target, "d7"))).toHaveLength(count / 50);
});

/** The changes of the race as the directory stands at this moment; what does not stand there is to be created. */
function asItStands(staged: StagedFolder, changeset: Changeset): Changeset {
  const places = ["file", "folder/canary", "folder/f", "outer/inner/canary", "outer/inner/f"];
  const facts = (root: string, place: string) => {
    try {
      return factsOf(fs.lstatSync(join(root, place), { bigint: true }));
    } catch {
      return null;
    }
  };
  const changes = places.map((place, index): Change => {
    const found = facts(staged.target, place);
    const base = found?.type === "file" ? found : null;
    const about = { index, mount: 0, parts: place.split("/"), path: `/work/${place}` as VirtualPath, refusal: null };
    return {
      ...about,
      kind: base === null ? "create" : "modify",
      type: "file",
      base,
      next: facts(staged.content, place),
    };
  });
  return { ...changeset, changes };
}

async function stepsOf(before: Tree, after: Tree): Promise<string[]> {
  using staged = stagedFolder(before, after);
  const steps: string[] = [];
  await apply(staged, staged.changeset(), (step) => void steps.push(step));
  return steps;
}

function tokenOf(staged: StagedFolder): string {
  const [first = ""] = fs.readFileSync(join(staged.logDir, "journal"), "utf8").split("\n");
  return (JSON.parse(first) as { token: string }).token;
}

function with_(changeset: Changeset, over: Partial<Change>): Changeset {
  return { ...changeset, changes: changeset.changes.map((change) => ({ ...change, ...over })) };
}

function replace(path: string, put: () => void): void {
  fs.rmSync(path);
  put();
}

function writeLike(path: string, text: string): void {
  const { atime, mtime } = fs.statSync(path);
  const file = fs.openSync(path, "r+");
  fs.writeSync(file, text);
  fs.closeSync(file);
  fs.utimesSync(path, atime, mtime);
}
