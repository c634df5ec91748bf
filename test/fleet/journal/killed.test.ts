import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { type JournalFixture, journalFixture } from "./journal-fixture.ts";
import { type Orchestrated, orchestrate } from "./orchestrated.ts";

const ROUNDS = AT_LENGTH ? 25 : 8;

let fixture: JournalFixture;

beforeEach(() => {
  fixture = journalFixture();
});

afterEach(() => {
  fixture[Symbol.dispose]();
});

function expectIntact(): void {
  using db = new DatabaseSync(fixture.path);
  expect(db.prepare("PRAGMA integrity_check").get()).toEqual({ integrity_check: "ok" });
}

async function killedAfter(running: Orchestrated, ms: number): Promise<void> {
  await sleep(ms);
  running.kill();
  await running.exit;
}

describe("a process that is killed", () => {
  it("while it reads the items makes no fleet that runs, or one that has them all", async () => {
    const outcomes = new Set<string>();
    for (let round = 0; round < ROUNDS / 2; round += 1) {
      const running = orchestrate({ path: fixture.path, load: 3000, width: 1 });
      await running.toldSoMany("fleet", 1);
      await killedAfter(running, round * 20);
      const fleet = running.told("fleet")[0] ?? "";
      await using journal = await fixture.open();
      const { state, counts } = (await journal.find(fleet)) ?? { state: "gone", counts: { total: 0 } };
      outcomes.add(state);
      if (running.told("loaded").length > 0) expect(state).not.toBe("loading");
      if (state !== "loading") expect(counts.total).toBe(3000);
    }
    expect(outcomes).toContain("loading");
    expectIntact();
  });

  it("while it claims and settles loses no item and records none twice, however often that happens", async () => {
    const COUNT = AT_LENGTH ? 4000 : 1600;
    const first = orchestrate({ path: fixture.path, load: COUNT, width: 8 });
    await first.toldSoMany("settled", 1);
    await killedAfter(first, 10);
    const fleet = first.told("fleet")[0] ?? "";
    const rounds = [first];
    for (let round = 0; round < ROUNDS; round += 1) {
      const running = orchestrate({ path: fixture.path, fleet, width: 8 });
      rounds.push(running);
      // Some are killed while they fence off what the one before has left.
      if (round % 3 > 0) await running.toldSoMany("claimed", 1);
      else await sleep(100);
      await killedAfter(running, round % 5);
    }
    const last = orchestrate({ path: fixture.path, fleet, width: 8 });
    expect(await last.exit).toBe(0);
    expect(last.told("ended")).toEqual(["done"]);
    rounds.push(last);

    await using journal = await fixture.open();
    const recorded = new Map((await Array.fromAsync(journal.results(fleet))).map(({ index, run }) => [index, run]));
    expect([...recorded.keys()]).toEqual(Array.from({ length: COUNT }, (_, index) => index));
    const settled = rounds.flatMap((round) => round.told("settled"));
    expect(new Set(settled.map((line) => line.split(" ")[0])).size).toBe(settled.length);
    for (const line of settled) expect(`${line.split(" ")[0]} ${recorded.get(Number(line.split(" ")[0]))}`).toBe(line);
    expect(rounds.flatMap((round) => round.told("fenced"))).toEqual([]);
    // Whoever claimed and could not settle was told of to those that came after, so that its container is found.
    const left = new Set(rounds.flatMap((round) => round.told("left")));
    const kept = new Set([...recorded].map(([index, run]) => `${index} ${run}`));
    expect(rounds.flatMap((round) => round.told("claimed")).filter((one) => !kept.has(one) && !left.has(one))).toEqual(
      [],
    );
    expect(left.size).toBeGreaterThan(ROUNDS / 3);
    expectIntact();
  }, 180_000);
});
