/**
 * How many empty items a second a store of fleets gives out and takes back: `node bench/queue-rate.ts [postgres://…] [ITEMS] [SIDE_BY_SIDE]`.
 * Without an address it is SQLite's journal in a temporary directory. Prints one line of JSON.
 */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FleetJournal } from "../src/fleet/journal/journal.ts";
import type { FleetSpec, ItemRequest, ItemResult } from "../src/fleet/model/item.ts";
import type { ClaimedItem } from "../src/fleet/model/queue.ts";
import type { FleetStore } from "../src/fleet/model/store.ts";
import { PostgresStore } from "../src/fleet/postgres/postgres-store.ts";
import { connectServer } from "../src/fleet/postgres/server.ts";

const args = process.argv.slice(2);
const url = args[0]?.includes("://") ? args.shift() : undefined;
const [count = 10_000, width = 64] = args.map(Number);

const SPEC: FleetSpec = {
  ...{ version: 1, worker: "w", policy: null, concurrency: width, reuse: "fresh", timeoutMs: null, retries: 0 },
  ...{ maxFailures: null, cache: false, source: "a measurement" },
};

async function* items(): AsyncGenerator<ItemRequest> {
  for (let index = 0; index < count; index += 1)
    yield { index, key: `item-${index}`, place: `items:${index}`, attachments: [] };
}

function resultOf({ request: { index, key }, attempt, run }: ClaimedItem): ItemResult {
  const at = new Date().toISOString();
  return {
    ...{ index, key, status: "succeeded", run, attempt, exitCode: 0, output: null, error: null, stderrLine: null },
    ...{ fields: {}, startedAt: at, endedAt: at, durationMs: 0, memoryBytesPeak: null },
  };
}

const dir = mkdtempSync(join(tmpdir(), "corral-queue-rate-"));
const never = { self: "this measurement", isDead: () => false };
const store: FleetStore =
  url === undefined
    ? await FleetJournal.open(join(dir, "fleets.db"), never)
    : await PostgresStore.open(await connectServer(url), {
        ...never,
        isAlive: () => true,
        project: randomBytes(32).toString("hex"),
      });
try {
  const fleet = await store.create(SPEC);
  const beganAt = performance.now();
  await store.load(fleet, items(), { collisionsIn: async () => null });
  const loadedAt = performance.now();
  const queue = await store.queue(fleet);
  const used = process.cpuUsage();
  // Each claims its next item while its last one is recorded, as a fleet does.
  const work = async (): Promise<void> => {
    for (;;) {
      const { items: claimed } = await queue.claim(1, () => ({ run: randomBytes(6).toString("hex"), cell: null }));
      const [item] = claimed;
      if (item === undefined) return;
      const result = resultOf(item);
      const taken = await queue.settle(result.index, result.attempt, { result, cacheKey: null, streams: null });
      if (!taken.ok) throw new Error(taken.reason);
    }
  };
  await Promise.all(Array.from({ length: width }, work));
  const endedAt = performance.now();
  const { user, system } = process.cpuUsage(used);
  if ((await store.end(fleet)) !== "done") throw new Error("items are left");
  const rate = (from: number, to: number): number => Math.round((count * 1000) / (to - from));
  process.stdout.write(
    `${JSON.stringify({
      store: url === undefined ? "sqlite" : "postgres",
      ...{ items: count, sideBySide: width, loadedPerSecond: rate(beganAt, loadedAt) },
      itemsPerSecond: rate(loadedAt, endedAt),
      processorUsPerItem: Math.round((user + system) / count),
    })}\n`,
  );
} finally {
  await store[Symbol.asyncDispose]();
  rmSync(dir, { recursive: true, force: true });
}
