import { type OpenedFleet, startFleet } from "../../src/fleet/fleet.ts";
import type { FleetSpec, ItemRequest, Reuse } from "../../src/fleet/model/item.ts";
import { inputOf } from "../project.ts";
import type { Ours } from "./ours.ts";

/** Runs a whole fleet over the first `items` items: from opening the store until its last cell is removed. */
export async function runFleet(ours: Ours, reuse: Reuse, items: number): Promise<void> {
  await using opened = await openFleet(ours, reuse, items);
  const { fleet } = opened;
  const [summary] = await Promise.all([fleet.run(), taken(fleet.results)]);
  if (summary.byStatus.succeeded !== items)
    throw new Error(
      `not all of ${items} items succeeded: ${JSON.stringify([summary.byStatus, summary.byReason, summary.why])}`,
    );
}

export async function openFleet(ours: Ours, reuse: Reuse, items: number): Promise<Extract<OpenedFleet, { ok: true }>> {
  const spec: FleetSpec = {
    version: 1,
    worker: "item",
    policy: null,
    concurrency: "auto",
    reuse,
    retries: 0,
    timeoutMs: null,
    maxFailures: null,
    cache: false,
    source: "the bench",
  };
  const { corral, store, projectDir } = ours;
  const stop = new AbortController().signal;
  const env = { run: corral.environment, store, onEvent: () => {}, stop };
  const opened = await startFleet(spec, requests(projectDir, items), env);
  if (!opened.ok) throw new Error(`the bench's fleet was refused: ${JSON.stringify(opened)}`);
  return opened;
}

async function* requests(projectDir: string, items: number): AsyncGenerator<ItemRequest> {
  for (let index = 0; index < items; index += 1)
    yield {
      index,
      key: String(index),
      place: `item ${index}`,
      attachments: [{ path: inputOf(projectDir, index), name: "in" }],
      allowRead: [`/out/${index}`],
      allowWrite: [`/out/${index}`],
    };
}

async function taken(results: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of results);
}
