import { describe, expect, it, vi } from "vitest";
import type { FleetSpec, ItemResult } from "../../../src/fleet/model/item.ts";
import { QueueError } from "../../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../../src/fleet/model/store.ts";
import type { AttemptDelivery, ClaimedWork, Membership } from "../../../src/fleet/model/work.ts";
import type { FleetEvent, FleetSummary } from "../../../src/fleet/running/events.ts";
import type { FleetParts, SettleChanges } from "../../../src/fleet/running/fleet-parts.ts";
import { unrunResult } from "../../../src/fleet/running/item-result.ts";
import { RunningFleet } from "../../../src/fleet/running/running-fleet.ts";
import { EngineTrouble } from "../../../src/isolation/port/driver.ts";
import { noChangesets } from "../../../src/run/changes/into-project.ts";
import { type Job, SchemaChecks } from "../../../src/run/model/job.ts";
import type { KeptChangesets } from "../../../src/run/model/result.ts";
import { MemoryWork } from "../work/memory-work.ts";
import { VirtualClock } from "../work/virtual-clock.ts";

const SPEC: FleetSpec = {
  ...{ version: 1, worker: "w", policy: null, concurrency: 0, reuse: "fresh", timeoutMs: null, retries: 1 },
  ...{ maxFailures: null, cache: false, source: "a test", machines: { needs: [], priority: 0, weight: 1 } },
};

const NEVER = new AbortController().signal;
const NO_CHANGES: SettleChanges = async ({ result }) => ({ result, hasBegun: false });

/** A coordinator of a fleet in memory, whose own items succeed at once, or do what `run` does. */
function coordinatorOf(
  items: number,
  spec: Partial<FleetSpec> = {},
  settleChanges: SettleChanges = NO_CHANGES,
  {
    run: runOne = async () => ({}),
    changesets = noChangesets,
    warm = 0,
  }: { run?: (job: Job) => Promise<object>; changesets?: KeptChangesets; warm?: number } = {},
) {
  const clock = new VirtualClock();
  const work = new MemoryWork(clock);
  const requests = Array.from({ length: items }, (_, index) => ({
    ...{ index, key: `k${index}`, place: "", attachments: [], fields: { n: index } },
  }));
  const fleet = work.addFleet("f", { ...SPEC, ...spec }, requests);
  fleet.agreement = { declarations: {}, images: {}, trees: {} };
  const events: FleetEvent[] = [];
  const stop = new AbortController();
  const store = {
    work,
    item: async (_: string, key: string) => ({ request: requests.find((request) => request.key === key) }),
    end: async () => (fleet.items.every(({ state }) => state === "done") ? "done" : null),
    pause: async () => true,
    find: async () =>
      fleet.state === "cancelled" ? { state: "cancelled", why: null, counts: { total: items, done: items } } : null,
    summary: async () => [],
    failureGroups: async () => [],
  } as unknown as FleetStore;
  const queue = work.queue("f");
  const running = new RunningFleet({
    ...{ id: "f", spec: fleet.spec, store, queue, cache: null, stop: stop.signal },
    job: {
      env: {
        ...{ now: clock.now, driver: { list: async () => [] }, changesets, schemas: new SchemaChecks() },
        project: { delegation: { maxDepth: 1, maxCalls: 1 } },
        ...{ ownerDir: "/tmp", refusedSources: { places: [] } },
      },
      reads: [],
      worker: { name: "w", output: "json", outputSchema: { not: { const: "forged" } } },
      sandbox: { limits: { timeoutMs: 60_000 }, mounts: [] },
    },
    executor: {
      run: async (job: Job) => ({
        ...{ status: "succeeded", stderr: "", stdout: "", usage: {}, changeset: null, error: null },
        ...(await runOne(job)),
      }),
    },
    troubles: { take: () => [], add: () => {} },
    share: {
      concurrency: { running: spec.concurrency ?? 0, warm },
      look: async () => ({ running: spec.concurrency ?? 0, warm }),
    },
    elsewhere: { work, agreed: "agreed", offer: async () => {}, settleChanges, pause: clock.pause },
    onEvent: (event: FleetEvent) => void events.push(event),
  } as unknown as FleetParts);
  const results: ItemResult[] = [];
  const run = async () => {
    const taking = (async () => {
      for await (const result of running.results) results.push(result);
    })();
    const summary = await running.run();
    await taking;
    return summary;
  };
  const told = (type: FleetEvent["type"]) => events.filter((event) => event.type === type);
  return { clock, work, fleet, queue, running, events, results, run, told, stop };
}

type Joined = Membership;

async function joined(work: MemoryWork, name = "one"): Promise<Joined & { model: { cut: boolean } }> {
  return await work.join({ name, labels: [], slots: 9, version: "0" });
}

let made = 0;
async function claimed(machine: Joined, count: number): Promise<readonly ClaimedWork[]> {
  return await machine.claim(["f"], count, () => {
    made += 1;
    return { run: `r${made}`, cell: null };
  });
}

function deliveryOf(item: ClaimedWork, result: Partial<ItemResult> = {}): AttemptDelivery {
  const ran = { ...unrunResult(item, "succeeded"), run: "forged", attempt: 99, key: "forged", exitCode: 0, ...result };
  return { result: ran, streams: { stdout: "out", stderr: "" }, changeset: null, more: null };
}

async function deliver(machine: Joined, item: ClaimedWork, result: Partial<ItemResult> = {}) {
  return await machine.deliver("f", item.request.index, item.attempt, deliveryOf(item, result));
}

describe("a coordinator that runs no items", () => {
  it("records what machines deliver, each once, and ends when all have come", async () => {
    const c = coordinatorOf(6);
    const ended = c.run();
    const machine = await joined(c.work);
    for (const item of await claimed(machine, 6)) expect(await deliver(machine, item)).toEqual({ ok: true });
    await c.clock.until(() => c.results.length === 6);
    expect(await ended).toMatchObject({ fleet: "f" });
    expect(c.results.map(({ key }) => key).sort()).toEqual(["k0", "k1", "k2", "k3", "k4", "k5"]);
    // What the machine says of the item itself does not count.
    expect(c.results[0]).toMatchObject({ attempt: 1, fields: { n: expect.any(Number) } });
    expect(c.results.every(({ run }) => run !== "forged")).toBe(true);
    expect(c.told("started")).toHaveLength(6);
    expect(c.told("started")[0]).toMatchObject({ machine: "one" });
    expect(c.fleet.items.map(({ state, settlement }) => [state, settlement?.streams?.stdout])).toEqual(
      Array(6).fill(["done", "out"]),
    );
  });

  it("fails an item whose output is not what its worker declares, and applies nothing of it", async () => {
    const settled: string[] = [];
    const c = coordinatorOf(1, { retries: 0 }, async ({ result }) => {
      settled.push(result.status);
      return { result, hasBegun: false };
    });
    const ended = c.run();
    const machine = await joined(c.work);
    for (const item of await claimed(machine, 1)) await deliver(machine, item, { output: "forged" });
    await c.clock.until(() => c.results.length === 1);
    await ended;
    expect(c.results).toMatchObject([{ status: "failed", error: { code: "OUTPUT_NOT_VALID" } }]);
    expect(settled).toEqual(["failed"]);
  });

  it("waits for items that nobody has taken yet", async () => {
    const c = coordinatorOf(1);
    let isOver = false;
    void c.run().then(() => {
      isOver = true;
    });
    await c.clock.advance(120_000);
    expect(isOver).toBe(false);
    const machine = await joined(c.work);
    const [item] = await claimed(machine, 1);
    if (item !== undefined) await deliver(machine, item);
    await c.clock.until(() => isOver);
  });

  it("waits for an item that it cannot claim, since the claim of a machine is not committed, also if it runs items itself", async () => {
    const c = coordinatorOf(1, { concurrency: 1 });
    let isHeld = true;
    const { claim } = c.queue;
    // The row can be seen as it was, and cannot be locked.
    c.queue.claim = async (count, newAttempt) =>
      isHeld ? { ...(await claim(0, newAttempt)), nextAtMs: null } : await claim(count, newAttempt);
    let isOver = false;
    void c.run().then(() => {
      isOver = true;
    });
    await c.clock.advance(30_000);
    expect(isOver).toBe(false);
    isHeld = false;
    await c.clock.until(() => isOver);
    expect(c.results).toMatchObject([{ key: "k0", status: "succeeded" }]);
  });

  it("queues again what a dead machine ran, and refuses what that one brings late", async () => {
    const c = coordinatorOf(2);
    const ended = c.run();
    const [dead, alive] = [await joined(c.work, "dead"), await joined(c.work, "alive")];
    const first = await claimed(dead, 2);
    dead.model.cut = true;
    await c.clock.advance(20_000);
    const again = await claimed(alive, 2);
    expect(again.map(({ attempt }) => attempt)).toEqual([2, 2]);
    dead.model.cut = false;
    for (const item of first) expect(await deliver(dead, item)).toMatchObject({ ok: false, code: "fenced" });
    for (const item of again) await deliver(alive, item);
    await c.clock.until(() => c.results.length === 2);
    await ended;
    expect(c.results.map(({ attempt }) => attempt)).toEqual([2, 2]);
  });

  it("retries what failed as often as the fleet says, wherever it ran", async () => {
    const c = coordinatorOf(1);
    const ended = c.run();
    const machine = await joined(c.work);
    const failed = { status: "failed", exitCode: 1, error: { code: "WORKER_FAILED", message: "no" } };
    const [first] = await claimed(machine, 1);
    if (first !== undefined) await deliver(machine, first, failed);
    await c.clock.until(() => c.told("settled").length === 1);
    expect(c.told("settled")[0]).toMatchObject({ retryInMs: 500, result: { status: "failed" } });
    let second: ClaimedWork | undefined;
    while (second === undefined) {
      // The pause is of the time of day, as with a store of its own.
      for (const item of c.fleet.items) item.notBefore = 0;
      [second] = await claimed(machine, 1);
      await c.clock.advance(100);
    }
    await deliver(machine, second, failed);
    await c.clock.until(() => c.results.length === 1);
    await ended;
    expect(c.results[0]).toMatchObject({ status: "failed", attempt: 2 });
  });

  it("takes no status that only a coordinator gives, and no text as a result", async () => {
    for (const forged of [
      { status: "cached" },
      { status: "pending" },
      { durationMs: -1 },
      { error: { code: "x", message: "" } },
    ]) {
      const c = coordinatorOf(1, { retries: 0 });
      void c.run();
      const machine = await joined(c.work);
      const [item] = await claimed(machine, 1);
      if (item !== undefined) await deliver(machine, item, forged as Partial<ItemResult>);
      await c.clock.until(() => c.told("settled").length === 1);
      expect(c.told("settled")[0]).toMatchObject({
        result: {
          status: "lost",
          key: "k0",
          error: { code: "DELIVERY_REFUSED", message: expect.stringContaining("one") },
        },
      });
      c.stop.abort();
      await c.clock.advance(2000);
    }
  });

  it("refuses a delivery that cannot be read, and records the others", async () => {
    const c = coordinatorOf(2, { retries: 0 });
    void c.run();
    const machine = await joined(c.work);
    const [unread, item] = await claimed(machine, 2);
    if (unread === undefined || item === undefined) throw new Error("nothing was claimed");
    await machine.deliver("f", unread.request.index, unread.attempt, {
      ...deliveryOf(unread),
      result: undefined as unknown as ItemResult,
    });
    await deliver(machine, item);
    await c.clock.until(() => c.told("settled").length === 2);
    expect(c.told("settled")).toMatchObject([
      { result: { status: "lost", error: { code: "DELIVERY_REFUSED" } }, retryInMs: expect.any(Number) },
      { result: { status: "succeeded" } },
    ]);
    expect(c.results).toHaveLength(1);
    c.stop.abort();
    await c.clock.advance(2000);
  });

  it("applies changes before it records, and records nothing if another attempt counts", async () => {
    const applied: string[] = [];
    const c = coordinatorOf(2, {}, async ({ delivered, result }, { queue }) => {
      const begun = await queue.begin(delivered.index, delivered.attempt, { result, cacheKey: null, streams: null });
      if (!begun.ok) return null;
      applied.push(delivered.key);
      const settled: ItemResult = delivered.key === "k1" ? { ...result, status: "pending" } : result;
      return { result: settled, hasBegun: true };
    });
    const ended = c.run();
    const machine = await joined(c.work);
    for (const item of await claimed(machine, 2)) await deliver(machine, item);
    await c.clock.until(() => c.results.length === 2);
    await ended;
    expect(applied.toSorted()).toEqual(["k0", "k1"]);
    expect(c.results.map(({ key, status }) => [key, status]).toSorted()).toEqual([
      ["k0", "succeeded"],
      ["k1", "pending"],
    ]);
  });

  it("lets machines end what they run when it is drained, and starts no further item", async () => {
    const c = coordinatorOf(3);
    const ended = c.run();
    const machine = await joined(c.work);
    const [item] = await claimed(machine, 1);
    await c.clock.advance(1500);
    c.running.drain("the fleet was stopped");
    await c.clock.advance(3000);
    expect(c.told("machines")).toMatchObject([{ machines: [{ running: 1 }] }]);
    expect(await claimed(machine, 3)).toEqual([]);
    if (item !== undefined) await deliver(machine, item);
    await c.clock.until(() => c.results.length === 1);
    await c.clock.advance(2000);
    expect(await ended).toMatchObject({ state: "paused", why: "the fleet was stopped" });
    expect(c.told("elsewhere").map((event) => event.type === "elsewhere" && event.running)).toEqual([1, 0]);
  });

  it("cancels what machines give back if it was drained before it was cancelled", async () => {
    const c = coordinatorOf(2);
    const ended = c.run();
    const machine = await joined(c.work);
    const [item] = await claimed(machine, 1);
    await c.clock.advance(1500);
    c.running.drain("the fleet was stopped");
    await c.clock.advance(1500);
    await c.work.queue("f").cancelQueued("enough");
    if (item !== undefined) await machine.giveBack("f", item.request.index, item.attempt, 0);
    await c.clock.advance(3000);
    expect(await ended).toMatchObject({ state: "cancelled" });
    expect(c.fleet.items.map(({ state }) => state)).toEqual(["done", "done"]);
  });

  it("loses an item whose delivery a bug ends, says so, and records every other; what was begun is finished", async () => {
    const [finished, dropped]: [string[], string[]] = [[], []];
    const c = coordinatorOf(
      3,
      {},
      async ({ delivered, result }, { queue, onBegun }) => {
        if (delivered.key === "k2") return { result, hasBegun: false };
        const intent = { result, cacheKey: null, streams: null };
        if (delivered.key === "k1" && (await queue.begin(delivered.index, delivered.attempt, intent)).ok)
          onBegun(intent);
        throw new TypeError("a bug");
      },
      {
        changesets: {
          ...noChangesets,
          async finish(run) {
            finished.push(run);
            return null;
          },
          // It may have kept changes before.
          drop: async (run) => void dropped.push(`${run} before ${c.results.length}`),
        },
      },
    );
    const ended = c.run();
    const machine = await joined(c.work);
    const items = await claimed(machine, 3);
    for (const item of items) await deliver(machine, item);
    await c.clock.until(() => c.results.length === 3);
    await ended;
    const byKey = new Map(c.results.map(({ key, status, error }) => [key, error?.code ?? status]));
    expect(byKey).toEqual(
      new Map([
        ["k0", "INTERNAL"],
        ["k1", "succeeded"],
        ["k2", "succeeded"],
      ]),
    );
    expect(finished).toEqual([items[1]?.run]);
    expect(dropped).toEqual([`${items[0]?.run} before 0`]);
    expect(c.told("trouble")).toHaveLength(2);
    expect(c.told("trouble")[0]).toMatchObject({ detail: expect.stringMatching(/^item k0 is lost, .* a bug/) });
    expect(c.fleet.items.map(({ state, attempt }) => [state, attempt])).toEqual(Array(3).fill(["done", 1]));
  });

  it("ends with the error if a delivery cannot be settled, and takes no other", async () => {
    const settling: string[] = [];
    const c = coordinatorOf(3, {}, async ({ delivered }) => {
      settling.push(delivered.key);
      throw new QueueError("a failure of the queue");
    });
    let error: unknown = null;
    void c.run().catch((failed: unknown) => {
      error = failed;
    });
    const machine = await joined(c.work);
    const [first, second] = await claimed(machine, 3);
    if (first !== undefined) await deliver(machine, first);
    await c.clock.advance(3000);
    if (second !== undefined) await deliver(machine, second);
    await c.clock.advance(60_000);
    expect(error).toMatchObject({ message: "a failure of the queue" });
    expect(settling).toEqual(["k0"]);
    expect(c.fleet.items.map(({ state }) => state)).toEqual(["delivered", "delivered", "running"]);
  });

  it("is paused if this machine or its Engine cannot settle a delivery now", async () => {
    const c = coordinatorOf(1, {}, async () => {
      throw new EngineTrouble("it does not answer");
    });
    const ended = c.run();
    const machine = await joined(c.work);
    for (const item of await claimed(machine, 1)) await deliver(machine, item);
    await c.clock.until(() => c.told("draining").length === 1);
    await c.clock.advance(3000);
    expect(await ended).toMatchObject({ state: "paused", why: "what a machine delivered cannot be settled now" });
    expect(c.told("trouble")).toMatchObject([{ detail: "it does not answer" }]);
    expect(c.fleet.items.map(({ state }) => state)).toEqual(["delivered"]);
  });

  it.each([
    ["begins it", true],
    ["records it", false],
  ])("stops everything at once if another process owns the fleet, and leaves its changes: it %s", async (_, begins) => {
    const touched: string[] = [];
    const ended: string[] = [];
    const touching = async (run: string | readonly string[]) => void touched.push(String(run));
    const c = coordinatorOf(
      3,
      { concurrency: 1 },
      async ({ delivered, result }, { queue }) => {
        if (!begins) return { result: { ...result, status: "pending" }, hasBegun: false };
        const begun = await queue.begin(delivered.index, delivered.attempt, { result, cacheKey: null, streams: null });
        return begun.ok ? { result, hasBegun: true } : null;
      },
      {
        run: async ({ signal, turn }) => {
          await turn?.();
          await new Promise((resolve) => signal.addEventListener("abort", resolve));
          ended.push((signal.reason as Error).message);
          return { status: "cancelled" };
        },
        changesets: { ...noChangesets, drop: touching, withdraw: touching },
      },
    );
    const machine = await joined(c.work);
    const [item] = await claimed(machine, 1);
    const summary = c.run();
    await c.clock.until(() => c.told("started").length === 1);
    c.fleet.state = "taken";
    if (item !== undefined) await deliver(machine, item);
    await c.clock.until(() => ended.length === 1);
    await c.clock.advance(3000);
    expect(await summary).toMatchObject({ why: "another process took over the fleet" });
    expect(ended).toEqual(["another process took over the fleet"]);
    expect(c.results).toEqual([]);
    // What the machine delivered is the other's; what ran here runs again there.
    expect(touched).not.toContain(item?.run);
    expect(c.fleet.items.map(({ state }) => state)).toEqual(["delivered", "running", "queued"]);
  });

  it("is stopped at once without what machines run", async () => {
    const c = coordinatorOf(1);
    const ended = c.run();
    await claimed(await joined(c.work), 1);
    await c.clock.advance(1500);
    c.stop.abort();
    await c.clock.advance(2000);
    expect(await ended).toMatchObject({ state: "paused" });
  });
});

describe("a coordinator that runs items too", () => {
  it("shares them with machines, and each runs once", async () => {
    const c = coordinatorOf(30, { concurrency: 2 });
    const machine = await joined(c.work);
    const taken = await claimed(machine, 5);
    const ended = c.run();
    await c.clock.until(() => c.results.length === 25);
    for (const item of taken) await deliver(machine, item);
    await c.clock.until(() => c.results.length === 30);
    await ended;
    expect(new Set(c.results.map(({ key }) => key)).size).toBe(30);
    expect(c.fleet.items.every(({ attempt }) => attempt === 1)).toBe(true);
  });

  /** Items take `ms` each, as long as they may run. */
  const timed = (items: number, ms: (index: number) => number) => {
    const c = coordinatorOf(items, { concurrency: 2, retries: 0 }, NO_CHANGES, {
      run: async ({ turn, signal, fleet }) => {
        await turn?.();
        await c.clock.pause(ms(fleet?.item ?? 0), signal);
        return signal.aborted ? { status: "cancelled" } : {};
      },
    });
    const held = () => c.fleet.items.filter(({ state }) => state === "running").length;
    const left = () => c.fleet.items.filter(({ state }) => state === "queued");
    return { c, held, left };
  };

  it("claims quick items ahead, and gives back at once those that have not begun when it is drained", async () => {
    const { c, held, left } = timed(200, (index) => (index < 60 ? 10 : 50_000));
    const ended = c.run();
    await c.clock.until(() => c.results.length === 40, 5);
    expect(held()).toBeGreaterThan(10);
    expect(held()).toBeLessThan(30);
    await c.clock.until(() => c.results.length === 60, 5);
    const waiting = held() - 2;
    expect(waiting).toBeGreaterThan(0);
    c.running.drain("a test");
    await c.clock.advance(5);
    // The two that run may end.
    expect([held(), c.told("started").length]).toEqual([2, 62]);
    expect(left().filter(({ attempt }) => attempt === 1)).toHaveLength(waiting);
    await c.clock.until(() => c.results.length === 62);
    expect(await ended).toMatchObject({ state: "paused", why: "a test" });
  });

  it("gives quick items that it claimed ahead back to machines when the items that run take longer", async () => {
    const { c, held } = timed(200, (index) => (index < 60 ? 10 : 5000));
    const ended = c.run();
    await c.clock.until(() => c.results.length === 60, 5);
    await c.clock.advance(1000);
    // Its share is looked at by a clock of the system.
    await vi.waitFor(() => expect(held()).toBe(2), { timeout: 30_000 });
    const machine = await joined(c.work);
    expect(await claimed(machine, 9)).toHaveLength(9);
    c.stop.abort(new Error("a test"));
    await machine[Symbol.asyncDispose]();
    await c.clock.advance(3000);
    await ended;
  });

  it.each([
    ["ends with the error of the database", new QueueError("restored"), "the fleet cannot continue: restored"],
    ["is paused by a bug", new TypeError("a bug"), "it could not be recorded that an item begins to change files"],
  ])("%s if it is not known whether an own item has begun, and loses none", async (_, failure, why) => {
    const c = coordinatorOf(3, { concurrency: 1 }, NO_CHANGES, {
      async run({ begin }) {
        await begin?.(null);
        return {};
      },
    });
    c.queue.begin = () => Promise.reject(failure);
    const ended = c.run().then(
      () => null,
      (error: unknown) => error,
    );
    await c.clock.advance(3000);
    expect(await ended).toBe(failure instanceof QueueError ? failure : null);
    expect(c.told("draining")).toMatchObject([{ why }]);
    expect(c.events.filter((event) => event.type === "trouble" && event.detail.includes("lost"))).toEqual([]);
    expect(c.results).toEqual([]);
    expect(c.fleet.items.map(({ state }) => state)).toEqual(["running", "queued", "queued"]);
  });

  it("removes what an own item kept that a bug ends, before it is recorded as lost", async () => {
    const dropped: string[] = [];
    const c = coordinatorOf(2, { concurrency: 1 }, NO_CHANGES, {
      async run({ fleet }) {
        if (fleet?.item === 0) throw new TypeError("a bug");
        return {};
      },
      changesets: {
        ...noChangesets,
        drop: async (run) => void dropped.push(`${run} ${c.fleet.items[0]?.state}`),
      },
    });
    await c.run();
    expect(c.results.map(({ status }) => status)).toEqual(["lost", "succeeded"]);
    expect(dropped).toEqual([`${c.results[0]?.run} running`]);
  });

  it("begins no prepared item after the last failure that it may have", async () => {
    const c = coordinatorOf(4, { concurrency: 1, retries: 0, maxFailures: 0 }, NO_CHANGES, {
      warm: 3,
      async run({ turn, signal, fleet }) {
        await turn?.().catch(() => {});
        if (signal.aborted) return { status: "cancelled" };
        return fleet?.item === 1 ? { status: "failed" } : {};
      },
    });
    const { settle } = c.queue;
    c.queue.settle = async (...settled) => {
      await c.clock.pause(100, NEVER);
      return await settle(...settled);
    };
    const ended = c.run();
    await c.clock.advance(3000);
    expect(await ended).toMatchObject({ why: "more than 0 items failed" });
    expect(c.told("started")).toMatchObject([{ key: "k0" }, { key: "k1" }]);
  });

  it.each([
    { counts: true, why: "more than 0 items failed", started: ["k0", "k1"] },
    { counts: false, why: null, started: ["k0", "k1", "k1", "k2", "k3"] },
  ])("begins none while it records a failure that may be the last one: $counts", async ({ counts, why, started }) => {
    const pauses: (() => Promise<unknown>)[] = [];
    const failing = new Set([1]);
    const c = coordinatorOf(4, { concurrency: 2, retries: 0, maxFailures: 0 }, NO_CHANGES, {
      warm: 1,
      async run({ turn, signal, fleet }) {
        await turn?.().catch(() => {});
        if (signal.aborted) return { status: "cancelled" };
        if (failing.delete(fleet?.item ?? 0)) return { status: "failed" };
        await pauses.shift()?.();
        return {};
      },
    });
    pauses.push(() => c.clock.pause(30, NEVER));
    const { settle } = c.queue;
    c.queue.settle = async (index, attempt, settlement, urgency) => {
      if (settlement.result.status !== "failed") return await settle(index, attempt, settlement, urgency);
      await c.clock.pause(100, NEVER);
      // The other one has ended, and nothing has begun in its place.
      expect(c.told("started")).toMatchObject([{ key: "k0" }, { key: "k1" }]);
      expect(c.results).toMatchObject([{ key: "k0" }]);
      if (counts) return await settle(index, attempt, settlement, urgency);
      await c.queue.requeue(index, attempt, 0);
      return { ok: false, code: "fenced", reason: "another attempt counts" };
    };
    const ended = c.run();
    await c.clock.advance(10_000);
    expect(await ended).toMatchObject({ why });
    expect(
      c
        .told("started")
        .map((event) => "key" in event && event.key)
        .toSorted(),
    ).toEqual(started);
  });

  it("waits for machines, and not for an own item that it cannot finish now", async () => {
    const full = Object.assign(new Error("no space left on device"), { code: "ENOSPC" });
    const c = coordinatorOf(2, { concurrency: 1 }, NO_CHANGES, {
      async run(job) {
        await job.begin?.(null);
        return { status: "lost" };
      },
      changesets: { ...noChangesets, withdraw: () => Promise.reject(full) },
    });
    const machine = await joined(c.work);
    const [item] = await claimed(machine, 1);
    let summary: FleetSummary | null = null;
    void c.run().then((ended) => {
      summary = ended;
    });
    await c.clock.until(() => c.told("draining").length === 1);
    await c.clock.advance(3000);
    expect(summary).toBe(null);
    if (item !== undefined) await deliver(machine, item);
    await c.clock.until(() => summary !== null);
    expect(summary).toMatchObject({ why: "changes that were begun cannot be finished now" });
    expect(c.fleet.items.map(({ state }) => state).toSorted()).toEqual(["applying", "done"]);
  });
});
