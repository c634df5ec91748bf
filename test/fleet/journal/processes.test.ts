import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { AT_LENGTH } from "../../tiers/at-length.ts";
import { type JournalFixture, journalFixture } from "./journal-fixture.ts";
import { orchestrate } from "./orchestrated.ts";

let fixture: JournalFixture;

beforeEach(() => {
  fixture = journalFixture();
});

afterEach(() => {
  fixture[Symbol.dispose]();
});

describe("several processes at one journal", () => {
  it("load and run a fleet each, and neither loses anything", async () => {
    const running = (AT_LENGTH ? [500, 1500, 3000] : [200, 600, 1200]).map((load) =>
      orchestrate({ path: fixture.path, load, width: 4 }),
    );
    expect(await Promise.all(running.map(({ exit }) => exit))).toEqual([0, 0, 0]);
    await using journal = await fixture.open();
    for (const each of running) {
      const fleet = each.told("fleet")[0] ?? "";
      const settled = each.told("settled");
      expect(each.told("ended")).toEqual(["done"]);
      expect(
        new Set((await Array.fromAsync(journal.results(fleet))).map(({ index, run }) => `${index} ${run}`)),
      ).toEqual(new Set(settled));
      expect((await journal.find(fleet))?.counts).toMatchObject({ total: settled.length, done: settled.length });
    }
  });

  it("do not run one fleet together: of those that resume it at once, one does", async () => {
    const COUNT = AT_LENGTH ? 3000 : 1500;
    const first = orchestrate({ path: fixture.path, load: COUNT, width: 4 });
    await first.toldSoMany("settled", 20);
    first.kill();
    await first.exit;
    const fleet = first.told("fleet")[0] ?? "";
    const resuming = [1, 2, 3].map(() => orchestrate({ path: fixture.path, fleet, width: 4 }));
    expect(await Promise.all(resuming.map(({ exit }) => exit))).toEqual([0, 0, 0]);
    expect(resuming.flatMap((each) => each.told("ended"))).toEqual(["done"]);
    expect(resuming.flatMap((each) => each.told("refused")).every((code) => code === "owned" || code === "over")).toBe(
      true,
    );
    await using journal = await fixture.open();
    expect((await journal.find(fleet))?.counts).toMatchObject({ total: COUNT, done: COUNT });
  });

  it("hear of it when another one cancels the fleet", async () => {
    const LOAD = AT_LENGTH ? 20_000 : 8000;
    const running = orchestrate({ path: fixture.path, load: LOAD, width: 4 });
    await running.toldSoMany("settled", 20);
    const fleet = running.told("fleet")[0] ?? "";
    await using journal = await fixture.open();
    expect(await (await journal.queue(fleet)).cancelQueued("corral fleet cancel")).toBeGreaterThan(0);
    expect(await running.exit).toBe(0);
    expect((await journal.find(fleet))?.counts).toMatchObject({ total: LOAD, queued: 0, running: 0, done: LOAD });
    expect((await journal.find(fleet))?.state).toBe("cancelled");
  });
});

it("holds a few of 10,000 items in memory: all of them are twice as large as what a process is given", async () => {
  const order = { path: fixture.path, load: 10_000, inputSize: 7500, width: 2, claims: 50 };
  const running = orchestrate(order, ["--max-old-space-size=36", "--max-semi-space-size=1"]);
  expect(await running.exit).toBe(0);
  expect(running.told("ended")).toEqual(["done"]);
  await using journal = await fixture.open();
  expect((await journal.find(running.told("fleet")[0] ?? ""))?.counts.done).toBe(10_000);
}, 120_000);
