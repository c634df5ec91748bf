import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import { attempts, type JournalFixture, journalFixture, loadedFleet, START, settlementOf } from "./journal-fixture.ts";

let fixture: JournalFixture;
let journal: FleetStore;
let now = START;

beforeEach(async () => {
  now = START;
  fixture = journalFixture();
  journal = await fixture.open("me", () => now);
});
afterEach(async () => {
  await journal[Symbol.asyncDispose]();
  fixture[Symbol.dispose]();
});

/** So many of those that were claimed end, one each half second. */
async function settled(fleet: string, from: number, to: number): Promise<void> {
  for (let index = from; index < to; index += 1) {
    now += 500;
    const result = { index, key: `doc-${index}.pdf`, endedAt: new Date(now).toISOString() };
    await (await journal.queue(fleet)).settle(index, 1, settlementOf(index, result));
  }
}

describe("the pace of a fleet", () => {
  it("is that of the last minute, for all that is left", async () => {
    const fleet = await loadedFleet(journal, 200);
    await (await journal.queue(fleet)).claim(60, attempts());
    expect(await journal.pace(fleet)).toEqual({ recentRate: null, leftMs: null });
    await settled(fleet, 0, 2);
    expect(await journal.pace(fleet)).toEqual({ recentRate: null, leftMs: null });
    await settled(fleet, 2, 40);
    const { recentRate, leftMs } = await journal.pace(fleet);
    expect(recentRate).toBeCloseTo(2, 0);
    expect(leftMs).toBeCloseTo(160_000 / (recentRate ?? 0), 3);
  });

  it("is unknown if nothing ended of late, or nothing runs", async () => {
    const fleet = await loadedFleet(journal, 30);
    await (await journal.queue(fleet)).claim(30, attempts());
    await settled(fleet, 0, 29);
    now += 61_000;
    expect(await journal.pace(fleet)).toEqual({ recentRate: null, leftMs: null });
    await settled(fleet, 29, 30);
    expect(await journal.pace(fleet)).toEqual({ recentRate: null, leftMs: null });
  });
});
