import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pack } from "tar-stream";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { applyChangeset, continueApplication } from "../../src/changes/apply/application.ts";
import { ChangesetStore } from "../../src/changes/store/changeset-store.ts";
import { failureOf } from "../../src/cli/terminal/failure.ts";
import { Database } from "../../src/fleet/journal/database.ts";
import { EngineTrouble } from "../../src/isolation/port/driver.ts";
import { unpackLayer } from "../../src/isolation/runc/ground/unpack-layer.ts";
import { DiskFull, fullPlace, isHostTrouble, roomAt } from "../../src/platform/errno.ts";
import { stagedFolder, treeAt } from "../changes/staged-folder.ts";

let dir: string;

beforeEach(() => {
  dir = fs.mkdtempSync(join(tmpdir(), "corral-full-"));
});

afterEach(() => {
  spawnSync("umount", ["-l", join(dir, "small")]);
  fs.rmSync(dir, { recursive: true, force: true });
});

/** A file system in memory at `dir/small`, and what fills it and frees it again. */
function small(kib: number) {
  const path = join(dir, "small");
  fs.mkdirSync(path);
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${kib}k,mode=700`, "none", path]);
  const filler = join(path, "filler");
  return {
    path,
    fill(leavesKib: number) {
      const { freeBytes } = roomAt(path) ?? { freeBytes: 0 };
      fs.writeFileSync(filler, Buffer.alloc(freeBytes - leavesKib * 1024));
    },
    free: () => fs.rmSync(filler),
  };
}

it("is known by the words of an engine whose disk it is, and told with what to do", () => {
  const words = "mkdir /data/overlay2/a-init: no space left on device";
  expect(isHostTrouble(new EngineTrouble(words))).toBe(true);
  const { text, status, error } = failureOf(new EngineTrouble(words), {});
  expect(text).toContain(`corral: the disk of the container engine is full: free space there (${words}). `);
  expect(text).toContain("`docker system df`");
  expect([status, error.code]).toEqual([125, "SYSTEM"]);
  const other = new EngineTrouble("no answer");
  expect(isHostTrouble(other)).toBe(false);
  expect(failureOf(other, {})).toMatchObject({ text: "corral: no answer", error: { code: "ENGINE_TROUBLE" } });
});

describe.skipIf(process.geteuid?.() !== 0)("a full disk", () => {
  it("is known by its place, also by one that does not exist yet, and one with room is not", () => {
    const { path, fill } = small(1024);
    expect(fullPlace([path])).toBeNull();
    fill(4);
    expect(fullPlace(["/nonexistent", join(path, "not/yet")])).toBe(join(path, "not/yet"));
    expect(roomAt(path)).toMatchObject({ isFull: true });
  });

  it("is what the layer of an image says that has no room", async () => {
    const { path } = small(1024);
    const draft = join(path, "draft");
    fs.mkdirSync(draft);
    const layer = pack();
    layer.entry({ name: "large" }, Buffer.alloc(2048 * 1024));
    layer.finalize();
    const failure = await unpackLayer(layer as AsyncIterable<Buffer>, draft).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(DiskFull);
    expect(String(failure)).toContain(`the disk of ${path} is full`);
  });

  it("stops an application between two changes, which goes on when there is room, and leaves nothing of its own", async () => {
    const { path, fill, free } = small(2048);
    const large = "x".repeat(400 * 1024);
    using staged = stagedFolder({}, { a: "first", b: large, c: "last" });
    // The target is on the small file system; what the run left is not.
    const target = join(path, "out");
    fs.mkdirSync(target);
    const changeset = staged.changeset();
    const { dev, ino } = fs.statSync(target, { bigint: true });
    const mounts = changeset.mounts.map((mount) => ({ ...mount, target, targetIdentity: `${dev}:${ino}` }));
    const moved = { ...changeset, mounts };
    fill(100);
    const which = moved.changes.map(({ index }) => index);
    const failure = await applyChangeset(moved, which, { logDir: staged.logDir }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(DiskFull);
    expect(String(failure)).toContain(`the disk of ${target} is full`);
    expect(isHostTrouble(failure)).toBe(true);
    expect(fs.readdirSync(target)).toEqual([]);
    free();
    const settled = await continueApplication(moved, { logDir: staged.logDir });
    expect(settled?.map(({ outcome }) => outcome)).toEqual(["applied", "applied", "applied"]);
    expect(treeAt(target)).toEqual({ a: "first", b: large, c: "last" });
  });

  it("does not stop a process that finds an application there which cannot be finished now", async () => {
    const { path, fill, free } = small(2048);
    using staged = stagedFolder({}, { a: "y".repeat(400 * 1024) });
    const target = join(path, "out");
    fs.mkdirSync(target);
    const { dev, ino } = fs.statSync(target, { bigint: true });
    const changeset = staged.changeset();
    const mounts = changeset.mounts.map((mount) => ({ ...mount, target, targetIdentity: `${dev}:${ino}` }));
    const store = new ChangesetStore(join(staged.path, "state"), { name: "me", isDead: () => false });
    await store.keep({ ...changeset, mounts }, "held", "waits");
    fill(100);
    await expect(store.applyKept(changeset.id, new Set([0]))).rejects.toThrow(DiskFull);
    expect(await store.finishInterrupted()).toEqual([
      { id: changeset.id, ok: false, reason: expect.stringContaining(`the disk of ${target} is full`) },
    ]);
    free();
    expect(await store.finishInterrupted()).toMatchObject([{ ok: true, settled: [{ outcome: "applied" }] }]);
    expect(fs.readdirSync(target)).toEqual(["a"]);
  });

  it("is what a journal says that cannot be written, and no bug", async () => {
    const { path, fill, free } = small(2048);
    using db = await Database.open(join(path, "fleets.db"));
    db.exec("CREATE TABLE t (x TEXT)");
    fill(8);
    const write = (): number => db.transaction(() => db.run("INSERT INTO t VALUES (?)", "z".repeat(300 * 1024)));
    const failure = (() => {
      try {
        write();
      } catch (error) {
        return error;
      }
    })();
    expect(failure).toBeInstanceOf(DiskFull);
    expect(String(failure)).toContain(`the disk of ${path} is full`);
    free();
    write();
    expect(db.all("SELECT length(x) AS length FROM t")).toEqual([{ length: 300 * 1024 }]);
  });
});
