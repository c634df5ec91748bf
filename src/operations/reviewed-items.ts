import type { ChangedItem } from "../changes/model/changeset.ts";
import type { ChangesetStore } from "../changes/store/changeset-store.ts";
import type { EndedChangeset } from "../changes/store/kept-folder.ts";
import { DeclarationError } from "../declarations/yaml/problem.ts";
import type { FleetStores } from "../fleet/fleet-stores.ts";
import { JournalError } from "../fleet/journal/database.ts";
import type { Reviewed } from "../fleet/model/item.ts";
import { QueueError } from "../fleet/model/queue.ts";

/** Recorded together, in one transaction of a store of fleets. */
const MAX_TOGETHER = 500;

/**
 * Records in the journals of fleets how the changesets of their items ended, and then forgets those changesets. What a process
 * that died had applied or discarded is recorded too. `id`: only this changeset, and rejects if its
 * store cannot be used; else the changesets of such a project stay, and no other project is stopped.
 */
export async function recordEnded(
  changesets: ChangesetStore,
  stores: FleetStores,
  id: string | null = null,
): Promise<void> {
  const place = { changesets, stores, unusable: id === null ? new Set<string>() : null };
  let some: EndedChangeset[] = [];
  for await (const ended of changesets.ended.each(id)) {
    some.push(ended);
    if (some.length < MAX_TOGETHER) continue;
    await recordSome(some, place);
    some = [];
  }
  await recordSome(some, place);
}

interface EndedPlace {
  readonly changesets: ChangesetStore;
  readonly stores: FleetStores;
  /** Projects whose store cannot be used: each is tried once, since a server may not answer for long. Null: that is an error. */
  readonly unusable: Set<string> | null;
}

async function recordSome(ended: readonly EndedChangeset[], place: EndedPlace): Promise<void> {
  for (const one of byFleet(ended)) {
    if (place.unusable?.has(one.project)) continue;
    try {
      await recordOf(one, place);
    } catch (error) {
      const isOfStore =
        error instanceof QueueError || error instanceof JournalError || error instanceof DeclarationError;
      if (place.unusable === null || !isOfStore) throw error;
      place.unusable.add(one.project);
    }
  }
}

interface EndedOfFleet {
  readonly project: string;
  readonly fleet: Omit<ChangedItem, "item">;
  readonly ended: { readonly id: string; readonly reviewed: Reviewed }[];
}

function byFleet(ended: readonly EndedChangeset[]): Iterable<EndedOfFleet> {
  const found = new Map<string, EndedOfFleet>();
  for (const { id, state } of ended) {
    const { project, fleet, run } = state;
    if (fleet === undefined) continue;
    const key = JSON.stringify([project, fleet.id, fleet.store]);
    const one = found.get(key) ?? { project, fleet, ended: [] };
    one.ended.push({ id, reviewed: { fleet: fleet.id, item: fleet.item, run, counts: finalCounts(state) } });
    found.set(key, one);
  }
  return found.values();
}

async function recordOf({ project, fleet, ended }: EndedOfFleet, { changesets, stores }: EndedPlace): Promise<void> {
  await stores.withStoreOf(fleet, project, async (store) => {
    // The store that has to learn this is not named now.
    if (store === "elsewhere") return;
    const unsettled = store === "removed" ? [] : await store.reviewed(ended.map(({ reviewed }) => reviewed));
    const runs = new Set(unsettled.map(({ run }) => run));
    // Only now: until then this is the only place that knows what was decided.
    for (const { id, reviewed } of ended) if (!runs.has(reviewed.run)) await changesets.ended.forget(id);
  });
}

/** What waited and was not applied is discarded. */
function finalCounts({ changes }: EndedChangeset["state"]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of changes) {
    const final = outcome === "applied" || outcome === "refused" ? outcome : "discarded";
    counts[final] = (counts[final] ?? 0) + 1;
  }
  return counts;
}
