import { randomBytes } from "node:crypto";
import type { FleetSpec, ItemRequest, ItemResult } from "../../src/fleet/model/item.ts";
import type { ClaimedItem, NewAttempt } from "../../src/fleet/model/queue.ts";
import type { FleetStore } from "../../src/fleet/model/store.ts";
import type { AttemptDelivery, Membership } from "../../src/fleet/model/work.ts";

const SPEC: FleetSpec = {
  ...{ version: 1, worker: "w", policy: null, concurrency: "auto", reuse: "fresh", timeoutMs: null, retries: 0 },
  ...{ maxFailures: null, cache: false, source: "a measurement" },
};
const AGREEMENT = { declarations: {}, images: {}, trees: {} };
/** What a machine claims at once, and how many deliveries a coordinator records at once. */
const SLOTS = 16;
const MAX_DELIVERIES = 200;

/** Makes a fleet of items that nothing runs. */
export async function emptyFleet(store: FleetStore, items: number, isShared: boolean): Promise<string> {
  const fleet = await store.create({
    ...SPEC,
    ...(isShared ? { machines: { needs: [], priority: 0, weight: 1 } } : {}),
  });
  const loaded = await store.load(fleet, requests(items), { collisionsIn: async () => null });
  if (!loaded.ok) throw new Error(JSON.stringify(loaded.problem));
  return fleet;
}

/** Gives out every item and takes its result, `width` at the same time. Each claims its next one while its last is recorded, as a fleet does. */
export async function emptyItems(store: FleetStore, fleet: string, width: number): Promise<void> {
  const queue = await store.queue(fleet);
  const lane = async (): Promise<void> => {
    for (;;) {
      const [item] = (await queue.claim(1, newAttempt)).items;
      if (item === undefined) return;
      const { index, attempt } = { index: item.request.index, attempt: item.attempt };
      const taken = await queue.settle(index, attempt, { result: resultOf(item), cacheKey: null, streams: null });
      if (!taken.ok) throw new Error(taken.reason);
    }
  };
  await Promise.all(Array.from({ length: width }, lane));
  if ((await store.end(fleet)) !== "done") throw new Error("items are left");
}

/** The same, but these machines claim and deliver the items, and their coordinator records them. */
export async function emptyItemsElsewhere(
  store: FleetStore,
  fleet: string,
  machines: readonly FleetStore[],
  items: number,
): Promise<void> {
  const { work } = store;
  if (work === null) throw new Error("this store has no machines");
  await work.offer(fleet, AGREEMENT);
  const ended = new AbortController();
  const queue = await store.queue(fleet);
  const recorded = async (): Promise<void> => {
    for (let done = 0; done < items; ) {
      const delivered = await work.deliveries(fleet, MAX_DELIVERIES);
      await Promise.all(
        delivered.map(({ index, attempt, result }) =>
          queue.settle(index, attempt, { result: result as ItemResult, cacheKey: null, streams: null }),
        ),
      );
      done += delivered.length;
      if (delivered.length === 0) await work.wake(1000, ended.signal);
    }
  };
  const working = machines.map(async (machine, at) => {
    const membership = await machine.work?.join({ name: `machine ${at}`, labels: [], slots: SLOTS, version: "bench" });
    if (membership === undefined) throw new Error("this store has no machines");
    await using _ = membership;
    await deliverAll(membership, fleet);
  });
  await Promise.all([recorded(), ...working]);
  ended.abort();
  if ((await store.end(fleet)) !== "done") throw new Error("items are left");
}

async function deliverAll(membership: Membership, fleet: string): Promise<void> {
  for (;;) {
    const claimed = await membership.claim([fleet], SLOTS, newAttempt);
    if (claimed.length === 0) return;
    await Promise.all(
      claimed.map(async (item) => {
        const delivery: AttemptDelivery = { result: resultOf(item), streams: null, changeset: null, more: null };
        const taken = await membership.deliver(fleet, item.request.index, item.attempt, delivery);
        if (!taken.ok) throw new Error(taken.reason);
      }),
    );
  }
}

async function* requests(count: number): AsyncGenerator<ItemRequest> {
  for (let index = 0; index < count; index += 1)
    yield { index, key: `item-${index}`, place: `items:${index}`, attachments: [] };
}

function newAttempt(): NewAttempt {
  return { run: randomBytes(6).toString("hex"), cell: null };
}

function resultOf({ request: { index, key }, attempt, run }: ClaimedItem): ItemResult {
  const at = new Date().toISOString();
  return {
    ...{ index, key, status: "succeeded", run, attempt, exitCode: 0, output: null, error: null, stderrLine: null },
    ...{ fields: {}, startedAt: at, endedAt: at, durationMs: 0, memoryBytesPeak: null },
  };
}
