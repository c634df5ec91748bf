import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FileLock, holdFile, isHeld, LockHeldError, tryHoldFile } from "../../src/state/file-lock.ts";

let dir: string;
let path: string;

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "corral-lock-"));
  path = join(dir, "lock");
});

afterEach(() => {
  vi.useRealTimers();
  rmSync(dir, { recursive: true });
});

const isDead = (name: string): boolean => name.startsWith("dead");
const lockOf = (name: string): FileLock => new FileLock(path, { name, isDead });
const left = (mark: string, name = "dead"): string => `${mark}\n${name}\n`;

/** Takes it, and is alone until it is given back. */
async function alone(lock: FileLock, inside: { count: number; most: number }): Promise<void> {
  await using _ = await lock.take();
  inside.count += 1;
  inside.most = Math.max(inside.most, inside.count);
  await new Promise((later) => setTimeout(later, 1));
  inside.count -= 1;
}

describe("a lock among processes", () => {
  it("is held by one at a time", async () => {
    const inside = { count: 0, most: 0 };
    const locks = Array.from({ length: 10 }, (_, index) => lockOf(`a${index}`));
    await Promise.all(locks.map((lock) => alone(lock, inside)));
    expect(inside.most).toBe(1);
    await Promise.all(locks.map((lock) => lock.close()));
    expect(readdirSync(dir)).toEqual([]);
  });

  it("is not taken for one that was left behind if it is given back while others look at it", async () => {
    const inside = { count: 0, most: 0 };
    const dead: string[] = [];
    const locks = Array.from({ length: 40 }, (_, index) => lockOf(`a${index}`));
    const looking = setInterval(() => dead.push(...readdirSync(dir).filter((name) => name.startsWith("lock."))), 1);
    await Promise.all(
      locks.map(async (lock) => {
        for (let turn = 0; turn < 2; turn += 1) await alone(lock, inside);
      }),
    ).finally(() => clearInterval(looking));
    expect(inside.most).toBe(1);
    expect(dead, "takeovers of a lock whose owners all live").toEqual([]);
    await Promise.all(locks.map((lock) => lock.close()));
  });

  it("names its holder from its first moment", async () => {
    const lock = lockOf("someone");
    await using _ = await lock.take();
    expect(readFileSync(path, "utf8")).toMatch(/^[0-9a-f]{16}\nsomeone\n$/);
  });

  it.each([
    ["a dead process", left("0123456789abcdef")],
    ["a machine that stopped", ""],
    ["a machine that stopped in the middle", "0123"],
  ])("is taken over from %s by one of many at a time, again and again", async (_, content) => {
    for (let round = 0; round < 20; round += 1) {
      writeFileSync(path, content);
      const inside = { count: 0, most: 0 };
      const locks = Array.from({ length: 8 }, (_, index) => lockOf(`a${index}`));
      await Promise.all(locks.map((lock) => alone(lock, inside)));
      expect(inside.most).toBe(1);
      await Promise.all(locks.map((lock) => lock.close()));
      expect(existsSync(path)).toBe(false);
    }
  });

  it("is taken over also from a process that died while it took over", async () => {
    writeFileSync(path, left("0123456789abcdef"));
    writeFileSync(`${path}.0123456789abcdef`, left("fedcba9876543210"));
    writeFileSync(`${path}.0123456789abcdef.fedcba9876543210`, left("00112233445566aa"));
    const inside = { count: 0, most: 0 };
    const locks = Array.from({ length: 8 }, (_, index) => lockOf(`a${index}`));
    await Promise.all(locks.map((lock) => alone(lock, inside)));
    await Promise.all(locks.map((lock) => lock.close()));
    expect(inside.most).toBe(1);
    expect(readdirSync(dir)).toEqual([]);
  });

  it("is not taken from the living by one that comes late, and found a dead holder before", async () => {
    const mark = "0123456789abcdef";
    writeFileSync(path, left(mark));
    let first: AsyncDisposable | null = null;
    const early = lockOf("early");
    // The late one has read the dead holder's name; before it acts on that, the early one takes over.
    const late = new FileLock(path, {
      name: "late",
      isDead: (name) => {
        if (first === null && isDead(name)) {
          rmSync(path);
          writeFileSync(path, left("aaaaaaaaaaaaaaaa", "early"));
          first = { [Symbol.asyncDispose]: async () => rmSync(path) };
        }
        return isDead(name);
      },
    });
    const waits = Promise.withResolvers<string>();
    const taken = late.take({ waitMs: 60_000, longestPauseMs: 5, onWait: waits.resolve });
    expect(await waits.promise).toBe("early");
    expect(readFileSync(path, "utf8")).toContain("early");
    await (first as AsyncDisposable | null)?.[Symbol.asyncDispose]();
    await using _ = await taken;
    expect(readFileSync(path, "utf8")).toContain("late");
    await early.close();
  });

  it("removes the tickets of the dead, and those of nobody else", async () => {
    writeFileSync(join(dir, "ticket.aaaaaaaaaaaaaaaa"), left("aaaaaaaaaaaaaaaa"));
    writeFileSync(join(dir, "ticket.bbbbbbbbbbbbbbbb"), left("bbbbbbbbbbbbbbbb", "alive"));
    writeFileSync(join(dir, "trail.ndjson"), "");
    const lock = lockOf("a");
    await (await lock.take())[Symbol.asyncDispose]();
    await lock.close();
    expect(readdirSync(dir).sort()).toEqual(["ticket.bbbbbbbbbbbbbbbb", "trail.ndjson"]);
  });

  it("is given up by whoever has waited long enough, or does not wait at all, and leaves nothing of that", async () => {
    const owner = { name: "late", isDead };
    await using lock = await holdFile(path, { name: "early", isDead }, { waitMs: 0, longestPauseMs: 0 });
    expect(await isHeld(path, owner)).toBe(true);
    expect(await tryHoldFile(path, owner)).toBe(null);
    const waits: string[] = [];
    const onWait = (name: string): void => {
      waits.push(name);
      vi.advanceTimersByTime(60_000);
    };
    vi.useFakeTimers({ toFake: ["performance"] });
    const patience = { waitMs: 60_000, longestPauseMs: 5, onWait };
    await expect(holdFile(path, owner, patience)).rejects.toThrow(LockHeldError);
    expect(waits).toEqual(["early"]);
    const signal = AbortSignal.timeout(20);
    await expect(holdFile(path, owner, { waitMs: 60_000, longestPauseMs: 5, signal })).rejects.toThrow(/abort/i);
    await lock[Symbol.asyncDispose]();
    expect(readdirSync(dir)).toEqual([]);
    expect(await isHeld(path, owner)).toBe(false);
  });
});
