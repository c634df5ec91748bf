import type { ChangesetStore } from "../changes/store/changeset-store.ts";
import type { Ended } from "../changes/store/ended-changesets.ts";
import type { Reviewed } from "../fleet/model/stored-item.ts";
import { openFleetStore } from "../fleet/open-store.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Recorded together, in one transaction of a store of fleets. */
const MAX_TOGETHER = 500;

/**
 * Records in the journals of fleets how the changesets of their items ended, and then forgets those changesets. What a process
 * that died had applied or discarded is recorded too. `env`: Corral's own environment. `id`: only this changeset.
 */
export async function recordEnded(
  changesets: ChangesetStore,
  stateDir: string,
  env: Env,
  id: string | null = null,
): Promise<void> {
  let some: Ended[] = [];
  for await (const ended of changesets.ended.each(id)) {
    some.push(ended);
    if (some.length < MAX_TOGETHER) continue;
    await recordSome(some, changesets, stateDir, env);
    some = [];
  }
  await recordSome(some, changesets, stateDir, env);
}

async function recordSome(
  ended: readonly Ended[],
  changesets: ChangesetStore,
  stateDir: string,
  env: Env,
): Promise<void> {
  const byProject = new Map<string, Reviewed[]>();
  for (const { state } of ended) {
    if (state.fleet === undefined) continue;
    const { id, item } = state.fleet;
    const items = byProject.get(state.project) ?? [];
    items.push({ fleet: id, item, run: state.run, counts: finalCounts(state) });
    byProject.set(state.project, items);
  }
  const unsettled = new Set<string>();
  for (const [project, items] of byProject) {
    await using store = await openFleetStore(stateDir, project, env);
    for (const { run } of await store.reviewed(items)) unsettled.add(run);
  }
  // Only now: until then this is the only place that knows what was decided.
  for (const { id, state } of ended) if (!unsettled.has(state.run)) await changesets.ended.forget(id);
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
