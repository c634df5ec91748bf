import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { FleetStore } from "../../src/fleet/model/store.ts";
import { FileLock, LockHeldError } from "../../src/state/file-lock.ts";
import { makeOwnerDir, reapLiveDirs } from "../../src/state/live-dir.ts";
import { currentOwner, formatOwner, lockOwner } from "../../src/state/owner.ts";
import { makeStateDir } from "../../src/state/state-dir.ts";
import { record, trailFixture } from "../audit/trail-fixture.ts";
import { items, journalFixture, noCollisions, SPEC } from "../fleet/journal/journal-fixture.ts";

let dir: string;
let lock: string;

beforeEach(() => {
  dir = fs.mkdtempSync(join(tmpdir(), "corral-faults-"));
  lock = join(dir, "lock");
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  spawnSync("umount", ["-l", join(dir, "small")]);
  fs.rmSync(dir, { recursive: true, force: true });
});

/** A small file system in memory at `dir/small`. */
function small(size: string): string {
  const path = join(dir, "small");
  fs.mkdirSync(path);
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${size},mode=700`, "none", path]);
  return path;
}

/** Leaves no byte free. Returns a function that frees all of it. */
function fill(path: string): () => void {
  const filler = join(path, "filler");
  const chunk = Buffer.alloc(4096);
  const file = fs.openSync(filler, "w");
  try {
    for (;;) fs.writeSync(file, chunk);
  } catch {
    // Full.
  }
  fs.closeSync(file);
  return () => fs.rmSync(filler);
}

const owner = { name: "me", isDead: (name: string) => name.startsWith("dead") };
const AT_ONCE = { waitMs: 0, longestPauseMs: 0 };

/** Mounts and other users need root. */
const asRoot = it.skipIf(process.geteuid?.() !== 0);

describe("whether a process is dead", () => {
  it("is not concluded from a process table that cannot be read, e.g. without a free descriptor", () => {
    const child = join(import.meta.dirname, "exhausted-child.ts");
    const args = ["-c", `ulimit -n 40; exec "$0" "$@"`, process.execPath, child, JSON.stringify(currentOwner())];
    const { stdout, stderr } = spawnSync("sh", args, { encoding: "utf8" });
    expect(JSON.parse(stdout || `{"stderr":${JSON.stringify(stderr)}}`)).toEqual({
      dead: false,
      self: expect.stringMatching(/EMFILE/),
    });
  });

  it("is known of a lock whose process id another process has now", async () => {
    const reused = formatOwner({ ...currentOwner(), startTicks: "1" });
    fs.writeFileSync(lock, `0123456789abcdef\n${reused}\n`);
    await using _ = await new FileLock(lock, lockOwner()).take(AT_ONCE);
    expect(fs.readFileSync(lock, "utf8")).toContain(formatOwner(currentOwner()));
  });
});

describe("a lock's file that is not Corral's", () => {
  it.each([
    ["a link to nothing", () => fs.symlinkSync(join(dir, "nothing"), lock)],
    [
      "a link to a file",
      () => {
        fs.writeFileSync(join(dir, "kept"), `0123456789abcdef\ndead\n`);
        fs.symlinkSync(join(dir, "kept"), lock);
      },
    ],
    ["a link to itself", () => fs.symlinkSync(lock, lock)],
    ["a FIFO", () => execFileSync("mkfifo", [lock])],
    ["an empty file", () => fs.writeFileSync(lock, "")],
    ["a file without an end", () => fs.symlinkSync("/dev/zero", lock)],
  ])("(%s) is removed or reported at once, and nothing hangs", async (_, plant) => {
    plant();
    const taken = new FileLock(lock, owner).take(AT_ONCE).then(
      async (held) => {
        await held[Symbol.asyncDispose]();
        return "taken";
      },
      (error: Error) => error.message,
    );
    const late = new Promise((resolve) => setTimeout(resolve, 20_000, "hangs"));
    expect(await Promise.race([taken, late])).toBe("taken");
    if (fs.existsSync(join(dir, "kept"))) expect(fs.readFileSync(join(dir, "kept"), "utf8")).toContain("dead");
  });

  it("(a folder) is reported with its path", async () => {
    fs.mkdirSync(lock);
    await expect(new FileLock(lock, owner).take(AT_ONCE)).rejects.toThrow(lock);
  });
});

describe("a wall clock that jumps", () => {
  it("by a day neither ends the wait for a lock nor makes it longer", async () => {
    fs.writeFileSync(lock, `0123456789abcdef\nalive\n`);
    const day = 86_400_000;
    const now = Date.now.bind(Date);
    for (const jump of [day, -day]) {
      vi.spyOn(Date, "now").mockImplementation(now);
      const begun = performance.now();
      const taking = new FileLock(lock, owner).take({ waitMs: 300, longestPauseMs: 10 });
      setTimeout(() => vi.spyOn(Date, "now").mockImplementation(() => now() + jump), 100);
      await expect(taking).rejects.toThrow(LockHeldError);
      expect(performance.now() - begun).toBeGreaterThan(290);
      expect(performance.now() - begun).toBeLessThan(10_000);
    }
  });

  it("backwards lets an item of a fleet wait no longer than its pause", async () => {
    using journal = journalFixture();
    let nowMs = Date.UTC(2026, 0, 2);
    await using opened: FleetStore = await journal.open("me", () => nowMs);
    const id = await opened.create(SPEC);
    await opened.load(id, items(1), noCollisions);
    const queue = await opened.queue(id);
    const attempt = () => ({ run: "r", cell: null });
    await queue.claim(1, attempt);
    await queue.requeue(0, 1, nowMs + 1000);
    nowMs -= 86_400_000;
    expect((await queue.claim(1, attempt)).items).toHaveLength(1);
  });
});

describe("the audit trail", () => {
  it("does not write its head through a link in the place of the new one", async () => {
    using f = trailFixture();
    await f.write(1);
    const kept = join(dir, "kept");
    fs.writeFileSync(kept, "mine");
    fs.symlinkSync(kept, `${f.place.head}.new`);
    await f.write(1).catch(() => {});
    expect(fs.readFileSync(kept, "utf8")).toBe("mine");
    await f.write(1);
    expect((await f.verify()).problems).toEqual([]);
  });

  it.each(["head", "trail"] as const)("(its %s a FIFO) reports that, and nothing hangs", async (which) => {
    using f = trailFixture();
    await f.write(1);
    fs.rmSync(f.place[which]);
    execFileSync("mkfifo", [f.place[which]]);
    const trail = f.open();
    const late = new Promise((resolve) => setTimeout(resolve, 20_000, "hangs"));
    const end = trail.append(record(2)).then(
      () => "written",
      (error: Error) => error.message,
    );
    expect(await Promise.race([end, late])).toMatch(/the audit trail cannot be written: .*not a regular file/);
  });

  asRoot(
    "on a full disk rejects, and is whole again with room: no record is lost that was promised, none is there twice",
    async () => {
      const path = small("64k");
      const state = join(path, "state");
      using f = trailFixture();
      fs.rmSync(f.place.dir, { recursive: true, force: true });
      fs.mkdirSync(state);
      fs.mkdirSync(join(f.place.dir, ".."), { recursive: true });
      fs.symlinkSync(state, f.place.dir);
      await f.write(5);
      const free = fill(path);
      await using trail = f.open();
      const failed = await Promise.allSettled(Array.from({ length: 40 }, (_, n) => trail.append(record(100 + n))));
      expect(failed.filter(({ status }) => status === "rejected").length).toBeGreaterThan(0);
      for (const each of failed)
        if (each.status === "rejected")
          expect(String(each.reason)).toMatch(/the audit trail cannot be written: .*ENOSPC/);
      free();
      await trail.append(record(7));
      const { problems } = await f.verify();
      expect(problems).toEqual([]);
      const text = fs.readFileSync(f.place.trail, "utf8");
      for (const n of [0, 1, 2, 3, 4, 7]) expect(text.split(`"run":"r${n}"`)).toHaveLength(2);
    },
  );

  asRoot("of a directory that is read-only rejects with that reason", async () => {
    const path = small("64k");
    using f = trailFixture();
    fs.mkdirSync(join(f.place.dir, ".."), { recursive: true });
    fs.symlinkSync(path, f.place.dir);
    await f.write(1);
    execFileSync("mount", ["-o", "remount,ro", path]);
    await expect(f.open().append(record(2))).rejects.toThrow(/the audit trail cannot be written: .*(EROFS|read-only)/);
  });

  it("of two writers, one of which was torn off in the middle of a record, is whole", async () => {
    using f = trailFixture();
    await f.write(2);
    fs.appendFileSync(f.place.trail, '{"seq":3,"at":"2026');
    await Promise.all([f.write(3, "a"), f.write(3, "b")]);
    const { problems, records } = (await f.verify()) as unknown as { problems: unknown[]; records?: number };
    expect(problems).toEqual([]);
    expect(records ?? 9).toBe(9);
  });
});

describe("the directory of a process", () => {
  it("of an owner that was written only in part stays, and a link in its place is not followed", async () => {
    const live = join(dir, "live");
    const dead = { ...currentOwner(), startTicks: "1" };
    fs.mkdirSync(join(live, "part"), { recursive: true });
    fs.writeFileSync(join(live, "part", "owner"), formatOwner(dead).slice(0, -4));
    const kept = join(dir, "kept");
    fs.mkdirSync(kept);
    fs.writeFileSync(join(kept, "owner"), formatOwner(dead));
    fs.writeFileSync(join(kept, "mine"), "mine");
    fs.symlinkSync(kept, join(live, "link"));
    const own = await makeOwnerDir(live, currentOwner());
    await reapLiveDirs(live, currentOwner());
    expect(fs.readFileSync(join(kept, "mine"), "utf8")).toBe("mine");
    expect(fs.existsSync(own)).toBe(true);
    expect(fs.existsSync(join(live, "part"))).toBe(true);
  });
});

describe("a state directory", () => {
  it("that another user can write is refused, also if it is only the group", async () => {
    for (const mode of [0o770, 0o707, 0o777]) {
      const state = join(dir, `state-${mode}`);
      fs.mkdirSync(state);
      fs.chmodSync(state, mode);
      await expect(makeStateDir(state)).rejects.toThrow(/writable by other users/);
    }
  });

  asRoot("of another user is refused", async () => {
    const state = join(dir, "theirs");
    fs.mkdirSync(state, { mode: 0o700 });
    fs.chownSync(state, 65_532, 65_532);
    await expect(makeStateDir(state)).rejects.toThrow(/other users/);
  });

  it("that is a file, or below one, is reported with what to do", async () => {
    const file = join(dir, "file");
    fs.writeFileSync(file, "");
    await expect(makeStateDir(join(file, "state"))).rejects.toThrow(/Set CORRAL_STATE_DIR/);
    await expect(makeStateDir(file)).rejects.toThrow(/not a directory/);
  });
});
