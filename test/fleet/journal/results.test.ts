import { describe, expect, it } from "vitest";
import { attempts, loadedFleet, runAll, START, settlementOf } from "./journal-fixture.ts";
import { journal, journalForEach } from "./journal-for-each.ts";

journalForEach();

const at = (ms: number): string => new Date(START + ms).toISOString();

/** 500 items: every tenth fails, of every hundredth nothing is known; each takes a second more than the one before. */
async function mixedFleet(): Promise<string> {
  const fleet = await loadedFleet(journal, 500);
  await runAll(await journal.queue(fleet), (index) => ({
    startedAt: at(0),
    endedAt: at((index + 1) * 1000),
    durationMs: (index + 1) * 1000,
    ...(index % 100 === 0
      ? { status: "lost", exitCode: null, error: { code: "engine", message: "the Engine went away" } }
      : index % 10 === 0
        ? { status: "failed", exitCode: 1, error: { code: "failed", message: `item ${index}` } }
        : {}),
  }));
  return fleet;
}

describe("results", () => {
  it("come in the order of the manifest, whole, whatever order they ended in", async () => {
    const fleet = await loadedFleet(journal, 500);
    const queue = await journal.queue(fleet);
    await queue.claim(500, attempts());
    for (let index = 499; index >= 0; index -= 1)
      void queue.settle(index, 1, settlementOf(index, { output: { index } }));
    await queue.counts();
    await queue.requeue(0, 1, 0);
    const results = await Array.fromAsync(journal.results(fleet));
    expect(results.map(({ index }) => index)).toEqual(Array.from({ length: 500 }, (_, index) => index));
    expect(results[7]).toEqual(settlementOf(7, { output: { index: 7 } }).result);
  });

  it("come by status, and those that failed as what they asked for", async () => {
    const fleet = await mixedFleet();
    expect((await Array.fromAsync(journal.results(fleet, { status: "lost" }))).map(({ index }) => index)).toEqual([
      0, 100, 200, 300, 400,
    ]);
    expect(await Array.fromAsync(journal.results(fleet, { status: "timed_out" }))).toEqual([]);
    const failed = await Array.fromAsync(journal.failed(fleet));
    expect(failed.map(({ index }) => index)).toEqual(Array.from({ length: 50 }, (_, index) => index * 10));
    expect(failed[3]).toMatchObject({ key: "doc-30.pdf", allowWrite: ["/text/doc-30"] });
    expect((await journal.find(fleet))?.counts.failed).toBe(50);
  });

  it("keep no more of a long output than fits, with a mark that says how much there was", async () => {
    const outputs = ["x".repeat(1_000_000), "\u0000😀".repeat(100_000), { rows: Array(50_000).fill("é") }, "short"];
    const fleet = await loadedFleet(journal, outputs.length);
    await runAll(await journal.queue(fleet), (index) => ({
      output: outputs[index],
      error: { code: "long", message: "m".repeat(100_000) },
    }));
    const results = await Array.fromAsync(journal.results(fleet));
    for (const result of results) {
      const { output, error } = result;
      expect(Buffer.byteLength(JSON.stringify(result))).toBeLessThanOrEqual(64 * 1024);
      expect(error?.message).toMatch(/^m{4096}… \(95904 characters more\)$/);
      if (output === "short") continue;
      expect(output).toMatch(/… \(\d+ characters more\)$/);
      expect(Buffer.byteLength(JSON.stringify(result))).toBeGreaterThan(40 * 1024);
    }
    expect(results[2]?.output).toMatch(/^\{"rows":\["é","é"/);
    expect(results[3]?.output).toBe("short");
  });
});

describe("a report", () => {
  it("sums up by status and reason, the most frequent first", async () => {
    expect(await journal.summary(await mixedFleet())).toEqual([
      { status: "succeeded", code: null, count: 450 },
      { status: "failed", code: "failed", count: 45 },
      { status: "lost", code: "engine", count: 5 },
    ]);
  });

  it("has the slowest items and the newest failures", async () => {
    const fleet = await mixedFleet();
    expect((await journal.slowest(fleet, 3)).map(({ index }) => index)).toEqual([499, 498, 497]);
    expect((await journal.lastFailures(fleet, 3)).map(({ index }) => index)).toEqual([490, 480, 470]);
  });
});

describe("what has succeeded before", () => {
  const KEY = "ab".repeat(32);

  it("is found in every fleet of the project, the newest first, and never what failed", async () => {
    const first = await journal.queue(await loadedFleet(journal, 2));
    expect(await journal.succeededBefore(KEY)).toBeNull();
    await first.claim(2, attempts());
    await first.settle(0, 1, settlementOf(0, { status: "failed" }, KEY));
    expect(await journal.succeededBefore(KEY)).toBeNull();
    await first.settle(1, 1, settlementOf(1, { output: "old" }, KEY));
    expect((await journal.succeededBefore(KEY))?.result.output).toBe("old");
    const fleet = await loadedFleet(journal, 1);
    await (await journal.queue(fleet)).claim(1, attempts());
    await (await journal.queue(fleet)).settle(0, 1, settlementOf(0, { output: "new" }, KEY));
    expect(await journal.succeededBefore(KEY)).toMatchObject({ fleet, result: { output: "new" } });
    // Only the beginnings of keys are indexed.
    expect(await journal.succeededBefore(`${KEY.slice(0, 16)}${"00".repeat(24)}`)).toBeNull();
  });

  it("is not found where its output was too long to be kept whole: a run would give another", async () => {
    const queue = await journal.queue(await loadedFleet(journal, 2));
    await queue.claim(2, attempts());
    await queue.settle(0, 1, settlementOf(0, { output: { text: "x".repeat(60_000) } }, KEY));
    await queue.settle(1, 1, settlementOf(1, { output: { text: "y".repeat(70_000) } }, `cd${KEY}`));
    expect(await journal.succeededBefore(KEY)).toMatchObject({ result: { output: { text: "x".repeat(60_000) } } });
    expect(await journal.succeededBefore(`cd${KEY}`)).toBeNull();
  });
});
