import type { ChangesetStore, Ended } from "../changes/store/changeset-store.ts";
import type { Reviewed } from "../fleet/journal/reviewed.ts";
import { openJournal } from "../fleet/open-journal.ts";

/** Recorded together, in one transaction of a journal. */
const MAX_TOGETHER = 500;

/**
 * Records in the journals of fleets how the changesets of their items ended, and then forgets those changesets. What a process
 * that died had applied or discarded is recorded too. `id`: only this changeset.
 */
export async function recordEnded(store: ChangesetStore, stateDir: string, id: string | null = null): Promise<void> {
  let some: Ended[] = [];
  for await (const ended of store.ended(id)) {
    some.push(ended);
    if (some.length < MAX_TOGETHER) continue;
    await recordSome(some, store, stateDir);
    some = [];
  }
  await recordSome(some, store, stateDir);
}

async function recordSome(ended: readonly Ended[], store: ChangesetStore, stateDir: string): Promise<void> {
  const byProject = new Map<string, Reviewed[]>();
  for (const { state } of ended) {
    if (state.fleet === undefined) continue;
    const { id, item } = state.fleet;
    const items = byProject.get(state.project) ?? [];
    items.push({ fleet: id, item, run: state.run, counts: finalCounts(state) });
    byProject.set(state.project, items);
  }
  for (const [project, items] of byProject) {
    using journal = await openJournal(stateDir, project);
    journal.reviewed(items);
  }
  // Only now: until then this is the only place that knows what was decided.
  for (const { id } of ended) await store.forgetEnded(id);
}

/** What waited and was not applied is discarded. */
function finalCounts({ changes }: Ended["state"]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { outcome } of changes) {
    const final = outcome === "applied" || outcome === "refused" ? outcome : "discarded";
    counts[final] = (counts[final] ?? 0) + 1;
  }
  return counts;
}
