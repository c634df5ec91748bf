import { openFleetStore } from "../../src/fleet/fleet-stores.ts";
import type { ItemRequest, ItemResult } from "../../src/fleet/model/item.ts";

const BATCH = 500;
/** Why an item of this index failed; null: it succeeded. The causes differ in how many they took. */
function failureOf(index: number): Pick<ItemResult, "status" | "error" | "stderrLine" | "exitCode"> | null {
  const failed = (message: string) =>
    ({
      status: "failed",
      error: { code: "EXIT", message: "it exited with 1" },
      stderrLine: message,
      exitCode: 1,
    }) as const;
  if (index % 50 === 7) return failed(`page ${index % 300} has no text layer`);
  if (index % 400 === 11) return failed(`cannot parse the date in field ${index % 9}`);
  if (index % 1000 === 13)
    return {
      status: "timed_out",
      error: { code: "TIMEOUT", message: "it ran for 30 s" },
      stderrLine: null,
      exitCode: null,
    };
  if (index % 5000 === 17)
    return {
      status: "oom_killed",
      error: { code: "OOM", message: "it used 256 MiB" },
      stderrLine: null,
      exitCode: 137,
    };
  return null;
}

/**
 * Writes a fleet of many items with the journal's own functions, as a process that runs it does, but runs nothing. `settled`: so many have
 * ended, and the rest waits. Returns its id; this process is its owner.
 */
export async function makeLargeFleet(
  place: { readonly stateDir: string; readonly projectDir: string },
  { items = 100_000, settled = items, worker = "extract" }: { items?: number; settled?: number; worker?: string } = {},
): Promise<string> {
  await using store = await openFleetStore(place.stateDir, place.projectDir, {});
  const fleet = await store.create({
    version: 1,
    worker,
    policy: null,
    concurrency: 8,
    reuse: "scrubbed",
    timeoutMs: 30_000,
    retries: 0,
    maxFailures: null,
    cache: true,
    source: "--over inbox/*.pdf",
  });
  await store.load(fleet, requests(items), { collisionsIn: async () => null });
  const queue = await store.queue(fleet);
  const began = Date.now() - settled * 20;
  for (let done = 0; done < settled; ) {
    const count = Math.min(BATCH, settled - done);
    const claim = await queue.claim(count, () => ({ run: "0123456789ab", cell: null }));
    await Promise.all(
      claim.items.map(async ({ request: { index, key }, attempt }) => {
        const failure = failureOf(index);
        const output = `${key} has ${index % 40} pages`;
        const result: ItemResult = {
          ...{ index, key, run: "0123456789ab", attempt, fields: {}, memoryBytesPeak: null },
          ...(failure ?? { status: "succeeded", error: null, stderrLine: null, exitCode: 0 }),
          output,
          startedAt: new Date(began + index * 20).toISOString(),
          endedAt: new Date(began + index * 20 + 150).toISOString(),
          durationMs: 100 + ((index * 7919) % 400),
        };
        const streams = { stdout: output, stderr: failure?.stderrLine ?? "" };
        await queue.settle(index, attempt, { result, cacheKey: null, streams });
      }),
    );
    done += claim.items.length;
  }
  if (settled === items) await store.end(fleet);
  return fleet;
}

async function* requests(items: number): AsyncGenerator<ItemRequest> {
  for (let index = 0; index < items; index += 1) {
    const key = `inbox/2024/${String(index).padStart(6, "0")}-invoice.pdf`;
    yield { index, key, place: key, attachments: [], fields: { path: key } };
  }
}
