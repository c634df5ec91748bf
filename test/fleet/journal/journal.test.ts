import { statSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, it } from "vitest";
import {
  attempts,
  itemAt,
  items,
  journalFixture,
  loadedFleet,
  noCollisions,
  runAll,
  SPEC,
  START,
  settlementOf,
} from "./journal-fixture.ts";
import { fixture, journal, journalForEach, reopen } from "./journal-for-each.ts";
import { isSqlite } from "./store-kind.ts";

journalForEach();

describe("a journal", () => {
  it.runIf(isSqlite)("is its owner's alone", () => {
    expect(statSync(dirname(fixture.path)).mode & 0o777).toBe(0o700);
    for (const suffix of ["", "-wal", "-shm"]) expect(statSync(fixture.path + suffix).mode & 0o777).toBe(0o600);
  });

  it.runIf(isSqlite)("of a newer Corral is refused, and left as it is", async () => {
    using db = new DatabaseSync(fixture.path);
    db.exec("PRAGMA user_version = 99");
    await expect(fixture.open()).rejects.toThrow(
      /version 99, but this Corral supports only \d+\. Use the newer Corral/,
    );
    expect(db.prepare("PRAGMA user_version").get()).toEqual({ user_version: 99 });
  });

  it("is opened by many at once, the first time as well", async () => {
    using other = journalFixture();
    const opened = await Promise.all(Array.from({ length: 8 }, () => other.open()));
    for (const each of opened) await each[Symbol.asyncDispose]();
  });

  it("lists fleets with what they were asked to be, the newest first", async () => {
    await using early = await fixture.open("me", () => START);
    const first = await loadedFleet(early, 2);
    const second = await loadedFleet(journal, 3);
    expect(first).toMatch(/^[0-9a-f]{12}$/);
    expect((await journal.list()).map(({ id }) => id)).toEqual([second, first]);
    expect((await journal.list(1)).map(({ id }) => id)).toEqual([second]);
    expect(await journal.find(first)).toEqual({
      id: first,
      spec: SPEC,
      state: "running",
      owner: "me",
      createdAt: "2026-01-01T00:00:00.000Z",
      endedAt: null,
      why: null,
      counts: { total: 2, queued: 2, running: 0, done: 0, failed: 0, pending: 0 },
    });
    expect(await journal.find("000000000000")).toBeNull();
  });

  it("takes nothing any more once it is closed", async () => {
    const queue = await journal.queue(await loadedFleet(journal, 1));
    await journal[Symbol.asyncDispose]();
    await expect(queue.claim(1, attempts())).rejects.toThrow("closed");
    await reopen();
  });

  it("writes what was asked for before it closes", async () => {
    const fleet = await loadedFleet(journal, 1);
    const queue = await journal.queue(fleet);
    await queue.claim(1, attempts());
    const settled = queue.settle(0, 1, settlementOf(0));
    await journal[Symbol.asyncDispose]();
    expect(await settled).toEqual({ ok: true });
    await reopen();
    expect((await journal.find(fleet))?.counts.done).toBe(1);
  });
});

describe("loading", () => {
  it("names both places of a key that two items have, and keeps nothing of the fleet", async () => {
    for (const second of [2, 700]) {
      const fleet = await journal.create(SPEC);
      const twice = items(1000, (index) => ({
        ...itemAt(index),
        key: index === second ? "doc-1.pdf" : itemAt(index).key,
      }));
      expect(await journal.load(fleet, twice, noCollisions)).toEqual({
        ok: false,
        problem: { code: "duplicate_key", key: "doc-1.pdf", places: ["items.jsonl:2", `items.jsonl:${second + 1}`] },
      });
      expect(await fixture.rows()).toBe(0);
    }
  });

  it("hands on what items may write by components, and keeps nothing of a fleet in which they collide", async () => {
    const paths = ["/text/a-b", "/text/a/c", "/text/é", "/text/a", "/text/a.d", "/text", "/"];
    const fleet = await journal.create(SPEC);
    const writing = items(paths.length, (index) => ({ ...itemAt(index), allowWrite: [paths[index] ?? ""] }));
    let sorted: string[] = [];
    const loaded = await journal.load(fleet, writing, {
      collisionsIn: async (outputs) => {
        sorted = (await Array.fromAsync(outputs)).map(({ path, key }) => `${path} ${key}`);
        return sorted;
      },
    });
    expect(sorted).toEqual([
      "/ doc-6.pdf",
      "/text doc-5.pdf",
      "/text/a doc-3.pdf",
      "/text/a/c doc-1.pdf",
      "/text/a-b doc-0.pdf",
      "/text/a.d doc-4.pdf",
      "/text/é doc-2.pdf",
    ]);
    expect(loaded).toEqual({ ok: false, problem: { code: "collisions", collisions: sorted } });
    expect(await fixture.rows()).toBe(0);
  });

  it("keeps nothing of a fleet whose source fails, and tells of that failure", async () => {
    async function* broken() {
      yield* items(600);
      throw new Error("items.jsonl:601: that is no JSON");
    }
    await expect(journal.load(await journal.create(SPEC), broken(), noCollisions)).rejects.toThrow("items.jsonl:601");
    expect(await fixture.rows()).toBe(0);
  });

  it("ends where it is cancelled, and leaves nothing", async () => {
    const cancelled = new AbortController();
    async function* endless() {
      for (let index = 0; ; index += 1) {
        if (index === 1200) cancelled.abort();
        yield itemAt(index);
      }
    }
    const options = { ...noCollisions, signal: cancelled.signal };
    await expect(journal.load(await journal.create(SPEC), endless(), options)).rejects.toThrow("aborted");
    expect(await fixture.rows()).toBe(0);
  });

  it("refuses an item that is too large", async () => {
    const large = items(1, (index) => ({ ...itemAt(index), input: "x".repeat(5 * 1024 ** 2) }));
    expect(await journal.load(await journal.create(SPEC), large, noCollisions)).toMatchObject({
      ok: false,
      problem: { code: "too_large", place: "items.jsonl:1", maxBytes: 4 * 1024 ** 2 },
    });
    const named = items(1, (index) => ({ ...itemAt(index), key: "k".repeat(5000) }));
    expect(await journal.load(await journal.create(SPEC), named, noCollisions)).toMatchObject({
      problem: { code: "too_large", bytes: 5000 },
    });
  });

  it("takes an empty fleet, which has nothing left to run", async () => {
    const fleet = await loadedFleet(journal, 0);
    expect((await (await journal.queue(fleet)).claim(1, attempts())).items).toEqual([]);
    expect(await journal.end(fleet)).toBe("done");
  });

  it("that a dead process left unfinished makes no fleet that runs, and can be discarded", async () => {
    await using dead = await fixture.open("dead");
    const fleet = await dead.create(SPEC);
    const { promise, resolve } = Promise.withResolvers<void>();
    async function* stuck() {
      yield* items(1000);
      await promise;
    }
    const loading = dead.load(fleet, stuck(), noCollisions);
    while (((await journal.find(fleet))?.counts.total ?? 0) < 1000) await new Promise((later) => setTimeout(later, 5));
    expect(await journal.takeOver(fleet)).toMatchObject({ ok: false, code: "never_loaded" });
    await expect((await journal.queue(fleet)).claim(1, attempts())).rejects.toThrow("loaded");
    expect(await journal.discard(fleet)).toBe(true);
    expect(await fixture.rows()).toBe(0);
    resolve();
    // Had it been alive after all, it could not have made a fleet of the half that is left.
    await expect(loading).rejects.toThrow("removed");
  });

  it("by a living process is not discarded", async () => {
    await using other = await fixture.open("other");
    const fleet = await other.create(SPEC);
    expect(await journal.discard(fleet)).toBe(false);
    expect(await journal.takeOver(fleet)).toMatchObject({ ok: false, code: "owned", owner: "other" });
    const mine = await loadedFleet(journal, 1);
    expect(await journal.discard(mine)).toBe(false);
  });
});

describe("forgetting a fleet", () => {
  it("takes all of it away, and gives the room back, once it has ended", async () => {
    const fleet = await loadedFleet(journal, 2000);
    expect(await journal.forget(fleet)).toBe(false);
    await runAll(await journal.queue(fleet));
    expect(await journal.forget(fleet), "it has not said that it ended").toBe(false);
    await journal.end(fleet);
    const other = await loadedFleet(journal, 1);
    const left = await fixture.rows();
    await journal.shrink();
    const size = isSqlite ? statSync(fixture.path).size : 0;
    expect(await journal.forget(fleet)).toBe(true);
    expect([await journal.find(fleet), (await journal.find(other))?.counts.total]).toEqual([null, 1]);
    expect(left - (await fixture.rows())).toBeGreaterThan(6000);
    expect(await fixture.rows()).toBe(3);
    await journal.shrink();
    if (isSqlite) expect(statSync(fixture.path).size).toBeLessThan(size / 2);
    expect(await journal.forget(fleet)).toBe(false);
  });

  it.runIf(isSqlite)("leaves the file as large as it is while somebody else writes", async () => {
    using other = new DatabaseSync(fixture.path);
    other.exec("BEGIN IMMEDIATE");
    await journal.shrink();
    other.exec("ROLLBACK");
    expect(await loadedFleet(journal, 1)).toMatch(/^[0-9a-f]{12}$/);
  });

  it("takes one that was paused, or still runs, from nobody", async () => {
    const fleet = await loadedFleet(journal, 2);
    await journal.pause(fleet, "the test says so");
    expect(await journal.forget(fleet)).toBe(false);
    expect((await journal.find(fleet))?.counts.total).toBe(2);
  });
});

describe("taking a fleet over", () => {
  it("is refused while its owner lives, which is named, and for a fleet that is not there or over", async () => {
    await using other = await fixture.open("other");
    const fleet = await loadedFleet(other, 1);
    expect(await journal.takeOver(fleet)).toMatchObject({ ok: false, code: "owned", owner: "other" });
    expect(await other.takeOver(fleet)).toMatchObject({ ok: false, code: "owned", owner: "other" });
    await runAll(await other.queue(fleet));
    expect(await other.end(fleet)).toBe("done");
    expect(await journal.takeOver(fleet)).toMatchObject({ ok: false, code: "over" });
    expect(await journal.takeOver("000000000000")).toMatchObject({ ok: false, code: "unknown" });
  });

  it("tells what ran, which is claimed again only after it was fenced off, and after what is fresh", async () => {
    await using dead = await fixture.open("dead");
    const fleet = await loadedFleet(dead, 4);
    const lost = await dead.queue(fleet);
    const runs = ["aaa", "bbb"];
    await lost.claim(2, () => ({ run: runs.shift() ?? "", cell: "warm-7" }));
    await lost.settle(0, 1, settlementOf(0));

    const resumed = await journal.takeOver(fleet);
    const running = { index: 1, key: "doc-1.pdf", attempt: 1, run: "bbb", cell: "warm-7", owner: "dead" };
    expect(resumed).toMatchObject({ ok: true, fleet: { state: "running", owner: "me" }, running: [running] });
    const queue = await journal.queue(fleet);
    expect((await queue.claim(1, attempts())).items.map(({ request }) => request.index)).toEqual([2]);
    expect(await journal.fenced(fleet, running)).toEqual({ ok: true });
    expect(await journal.fenced(fleet, running)).toMatchObject({ ok: false, code: "fenced" });
    const { items: rest } = await queue.claim(10, attempts());
    expect(rest.map(({ request, attempt }) => [request.index, attempt])).toEqual([
      [3, 1],
      [1, 2],
    ]);
  });

  it("stops a former owner that was alive after all: it claims nothing, and its result is refused", async () => {
    await using dead = await fixture.open("dead");
    const fleet = await loadedFleet(dead, 3);
    const former = await dead.queue(fleet);
    await former.claim(1, attempts());
    const resumed = await journal.takeOver(fleet);
    if (!resumed.ok) throw new Error(resumed.reason);
    for (const item of resumed.running) await journal.fenced(fleet, item);
    expect(await former.claim(1, attempts())).toEqual({ items: [], nextAtMs: null, elsewhere: 0, fleet: "taken" });
    expect(await former.settle(0, 1, settlementOf(0))).toMatchObject({ ok: false, code: "taken" });
    expect(await dead.pause(fleet, "Ctrl-C")).toBe(false);
    expect(await dead.end(fleet)).toBeNull();
  });

  it("goes on with a paused fleet, and with what its owner left running", async () => {
    const fleet = await loadedFleet(journal, 2);
    await (await journal.queue(fleet)).claim(1, attempts());
    expect(await journal.pause(fleet, "Ctrl-C")).toBe(true);
    expect(await journal.find(fleet)).toMatchObject({ state: "paused", owner: null, why: "Ctrl-C" });
    expect((await (await journal.queue(fleet)).claim(1, attempts())).fleet).toBe("paused");
    await using other = await fixture.open("other");
    expect(await other.takeOver(fleet)).toMatchObject({
      ok: true,
      fleet: { state: "running", owner: "other", why: null },
      running: [{ index: 0, run: "r1", owner: "me" }],
    });
  });

  it("of a cancelled fleet ends what is left, and nothing more", async () => {
    await using dead = await fixture.open("dead");
    const fleet = await loadedFleet(dead, 3);
    await (await dead.queue(fleet)).claim(1, attempts());
    expect(await (await journal.queue(fleet)).cancelQueued("enough")).toBe(2);
    const resumed = await journal.takeOver(fleet);
    expect(resumed).toMatchObject({ ok: true, fleet: { state: "cancelled", why: "enough" }, running: [{ index: 0 }] });
    expect(await journal.end(fleet)).toBeNull();
    for (const item of resumed.ok ? resumed.running : []) await journal.fenced(fleet, item);
    expect((await (await journal.queue(fleet)).claim(1, attempts())).items).toEqual([]);
    expect(await (await journal.queue(fleet)).cancelQueued("enough")).toBe(1);
    expect(await journal.end(fleet)).toBe("cancelled");
    expect(await journal.takeOver(fleet)).toMatchObject({ ok: false, code: "over" });
    expect((await Array.fromAsync(journal.results(fleet))).map(({ status }) => status)).toEqual([
      "cancelled",
      "cancelled",
      "cancelled",
    ]);
  });
});

it("does not end a fleet of which something is left", async () => {
  const fleet = await loadedFleet(journal, 2);
  const queue = await journal.queue(fleet);
  expect(await journal.end(fleet)).toBeNull();
  await queue.claim(2, attempts());
  await queue.settle(0, 1, settlementOf(0));
  expect(await journal.end(fleet)).toBeNull();
  await queue.settle(1, 1, settlementOf(1));
  expect(await journal.end(fleet)).toBe("done");
  expect(await journal.find(fleet)).toMatchObject({ state: "done", owner: null, endedAt: expect.any(String) });
});
