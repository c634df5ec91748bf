import { describe, expect, it } from "vitest";
import type { FleetQueue } from "../../../src/fleet/model/queue.ts";
import { attempts, loadedFleet, settlementOf } from "./journal-fixture.ts";
import { fixture, journal, journalForEach } from "./journal-for-each.ts";

journalForEach();

const failure = (stderrLine: string) =>
  ({ status: "failed", exitCode: 1, error: { code: "FAILED", message: stderrLine }, stderrLine }) as const;

async function run(queue: FleetQueue, count: number, fails: (index: number) => string | null): Promise<number[]> {
  const { items } = await queue.claim(count, attempts());
  for (const { request, attempt } of items) {
    const line = fails(request.index);
    const more = { attempt, ...(line === null ? {} : failure(line)) };
    const streams = { stdout: "", stderr: line ?? "" };
    await queue.settle(request.index, attempt, { ...settlementOf(request.index, more), streams });
  }
  return items.map(({ request }) => request.index);
}

const statuses = async (fleet: string): Promise<string[]> =>
  (await Array.fromAsync(journal.results(fleet))).map(({ status }) => status);
const counts = async (fleet: string) => await (await journal.queue(fleet)).counts();

/** Four items: 1 and 3 failed. */
async function halfFailed(): Promise<string> {
  const fleet = await loadedFleet(journal, 4);
  await run(await journal.queue(fleet), 10, (index) => (index % 2 === 1 ? `first of ${index}` : null));
  expect(await journal.end(fleet)).toBe("done");
  return fleet;
}

describe("failed items that are retried in place", () => {
  it("wait in the same fleet, and keep their results until each new attempt ends", async () => {
    const fleet = await halfFailed();
    expect(await journal.takeOver(fleet, { retries: true })).toMatchObject({ ok: true, running: [] });
    expect(await journal.retryFailed(fleet)).toBe(2);
    expect(await journal.find(fleet)).toMatchObject({ state: "running", endedAt: null });
    expect(await counts(fleet)).toMatchObject({ total: 4, done: 2, queued: 2, failed: 0 });
    expect(await statuses(fleet)).toEqual(["succeeded", "failed", "succeeded", "failed"]);
    expect(await journal.item(fleet, "doc-1.pdf")).toMatchObject({
      state: "queued",
      streams: { stderr: "first of 1" },
      attempts: [],
    });
    expect(await run(await journal.queue(fleet), 1, () => null)).toEqual([1]);
    expect(await statuses(fleet)).toEqual(["succeeded", "succeeded", "succeeded", "failed"]);
    expect(await journal.item(fleet, "doc-1.pdf")).toMatchObject({
      state: "done",
      result: { attempt: 2, status: "succeeded" },
      streams: { stderr: "" },
      attempts: [{ attempt: 1, status: "failed", exitCode: 1, stderrLine: "first of 1", error: { code: "FAILED" } }],
    });
    await run(await journal.queue(fleet), 1, () => "second");
    expect(await journal.end(fleet)).toBe("done");
    expect(await counts(fleet)).toMatchObject({ done: 4, failed: 1 });
    expect(await journal.summary(fleet)).toEqual([
      { status: "succeeded", code: null, count: 3 },
      { status: "failed", code: "FAILED", count: 1 },
    ]);
  });

  it("count attempts on, and further retries from the last one in place", async () => {
    const fleet = await halfFailed();
    await journal.takeOver(fleet, { retries: true });
    await journal.retryFailed(fleet);
    const { items } = await (await journal.queue(fleet)).claim(1, attempts());
    expect(items).toMatchObject([{ attempt: 2, earlier: 1 }]);
  });

  it("are not retried in a fleet that another process runs, or that was cancelled", async () => {
    const fleet = await loadedFleet(journal, 2);
    await run(await journal.queue(fleet), 1, () => "x");
    await using other = await fixture.open("other");
    expect(await other.takeOver(fleet, { retries: true })).toMatchObject({ ok: false, code: "owned" });
    await (await journal.queue(fleet)).cancelQueued("enough");
    await journal.end(fleet);
    expect(await journal.takeOver(fleet, { retries: true })).toMatchObject({ ok: false, code: "cancelled" });
    expect((await journal.find(fleet))?.state).toBe("cancelled");
  });

  it("are taken over from a process that died, with those that it ran", async () => {
    const fleet = await halfFailed();
    {
      await using dead = await fixture.open("dead one");
      expect(await dead.takeOver(fleet, { retries: true })).toMatchObject({ ok: true });
      await dead.retryFailed(fleet);
      await (await dead.queue(fleet)).claim(1, attempts());
    }
    expect(await statuses(fleet)).toEqual(["succeeded", "failed", "succeeded", "failed"]);
    const taken = await journal.takeOver(fleet);
    expect(taken).toMatchObject({ ok: true, running: [{ index: 1, attempt: 2 }] });
    for (const item of taken.ok ? taken.running : []) await journal.fenced(fleet, item);
    expect((await run(await journal.queue(fleet), 10, () => null)).toSorted()).toEqual([1, 3]);
    expect(await journal.end(fleet)).toBe("done");
    expect(await counts(fleet)).toMatchObject({ done: 4, failed: 0 });
  });

  it("have their earlier results again if they are cancelled", async () => {
    const fleet = await halfFailed();
    await journal.takeOver(fleet, { retries: true });
    await journal.retryFailed(fleet);
    expect(await (await journal.queue(fleet)).cancelQueued("enough")).toBe(2);
    expect(await journal.end(fleet)).toBe("cancelled");
    expect(await statuses(fleet)).toEqual(["succeeded", "failed", "succeeded", "failed"]);
    expect(await counts(fleet)).toMatchObject({ total: 4, done: 4, queued: 0, failed: 2 });
    expect(await journal.failureGroups(fleet)).toMatchObject([{ count: 2, text: "first of 1" }]);
  });

  it("show no result twice while they wait again, after an attempt that was withdrawn", async () => {
    const fleet = await halfFailed();
    await journal.takeOver(fleet, { retries: true });
    await journal.retryFailed(fleet);
    const queue = await journal.queue(fleet);
    await queue.claim(1, attempts());
    await queue.requeue(1, 2, 0, "withdrawn");
    expect(await journal.item(fleet, "doc-1.pdf")).toMatchObject({
      state: "queued",
      result: { attempt: 1, status: "failed" },
      attempts: [],
    });
  });

  it("keep at most five earlier attempts", async () => {
    const fleet = await halfFailed();
    for (let round = 2; round < 10; round += 1) {
      await journal.takeOver(fleet, { retries: true });
      await journal.retryFailed(fleet);
      await run(await journal.queue(fleet), 10, () => `round ${round}`);
      expect(await journal.end(fleet)).toBe("done");
    }
    const earlier = (await journal.item(fleet, "doc-3.pdf"))?.attempts.map(({ attempt }) => attempt);
    expect(earlier).toEqual([8, 7, 6, 5, 4]);
  });
});
