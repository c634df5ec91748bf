import { type OpenedFleet, startFleet } from "../../src/fleet/fleet.ts";
import type { FleetSpec, ItemRequest, Reuse } from "../../src/fleet/model/item.ts";
import type { Transport } from "../../src/fleet/running/fleet-parts.ts";
import { inputOf } from "../project.ts";
import type { Ours } from "./ours.ts";

/** Runs a whole fleet over the first `items` items: from opening the store until its last cell is removed. */
export async function runFleet(ours: Ours, reuse: Reuse, items: number, sharing?: Sharing): Promise<void> {
  await using opened = await openFleet(ours, reuse, items, sharing);
  const { fleet } = opened;
  const [summary] = await Promise.all([fleet.run(), taken(fleet.results)]);
  if (summary.byStatus.succeeded !== items)
    throw new Error(
      `not all of ${items} items succeeded: ${JSON.stringify([summary.byStatus, summary.byReason, summary.why])}`,
    );
}

/** Items that only read their input, so that other machines could run them; `isShared`: only other machines do. */
export type Sharing = { readonly isShared: false } | { readonly isShared: true; readonly transport: Transport };

export async function openFleet(
  ours: Ours,
  reuse: Reuse,
  items: number,
  sharing?: Sharing,
): Promise<Extract<OpenedFleet, { ok: true }>> {
  const spec: FleetSpec = {
    version: 1,
    worker: sharing === undefined ? "item" : "reader",
    policy: null,
    concurrency: sharing?.isShared ? 0 : "auto",
    reuse,
    retries: 0,
    timeoutMs: null,
    maxFailures: null,
    cache: false,
    source: "the bench",
    machines: sharing?.isShared ? { needs: [], priority: 0, weight: 1 } : null,
  };
  const { corral, store, projectDir } = ours;
  const stop = new AbortController().signal;
  const transport = sharing?.isShared ? { transport: sharing.transport } : {};
  const env = { run: corral.environment, store, onEvent: () => {}, stop, ...transport };
  const asked = sharing === undefined ? requests(projectDir, items) : inputs(items);
  const opened = await startFleet(spec, asked, env);
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

async function* inputs(items: number): AsyncGenerator<ItemRequest> {
  for (let index = 0; index < items; index += 1)
    yield { index, key: String(index), place: `item ${index}`, input: index, attachments: [] };
}

async function taken(results: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of results);
}
