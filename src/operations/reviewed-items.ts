import type { ChangesetStore } from "../changes/store/changeset-store.ts";
import type { Ended } from "../changes/store/ended-changesets.ts";
import { DeclarationError } from "../declarations/yaml/problem.ts";
import { JournalError } from "../fleet/journal/database.ts";
import { QueueError } from "../fleet/model/queue-error.ts";
import type { Reviewed } from "../fleet/model/stored-item.ts";
import { openFleetStore } from "../fleet/open-store.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Recorded together, in one transaction of a store of fleets. */
const MAX_TOGETHER = 500;

/**
 * Records in the journals of fleets how the changesets of their items ended, and then forgets those changesets. What a process
 * that died had applied or discarded is recorded too. `env`: Corral's own environment. `id`: only this changeset, and rejects if its
 * store cannot be used; else the changesets of such a project stay, and no other project is stopped.
 */
export async function recordEnded(
  changesets: ChangesetStore,
  stateDir: string,
  env: Env,
  id: string | null = null,
): Promise<void> {
  const place = { changesets, stateDir, env, unusable: id === null ? new Set<string>() : null };
  let some: Ended[] = [];
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
  readonly stateDir: string;
  readonly env: Env;
  /** Projects whose store cannot be used: each is tried once, since a server may not answer for long. Null: that is an error. */
  readonly unusable: Set<string> | null;
}

async function recordSome(ended: readonly Ended[], place: EndedPlace): Promise<void> {
  const byProject = new Map<string, Ended[]>();
  for (const one of ended) {
    const own = byProject.get(one.state.project) ?? [];
    own.push(one);
    byProject.set(one.state.project, own);
  }
  for (const [project, own] of byProject) {
    if (place.unusable?.has(project)) continue;
    try {
      await recordOf(project, own, place);
    } catch (error) {
      const isOfStore =
        error instanceof QueueError || error instanceof JournalError || error instanceof DeclarationError;
      if (place.unusable === null || !isOfStore) throw error;
      place.unusable.add(project);
    }
  }
}

async function recordOf(
  project: string,
  ended: readonly Ended[],
  { changesets, stateDir, env }: EndedPlace,
): Promise<void> {
  const items = ended.flatMap(({ state }): Reviewed[] => {
    if (state.fleet === undefined) return [];
    const { id, item } = state.fleet;
    return [{ fleet: id, item, run: state.run, counts: finalCounts(state) }];
  });
  await using store = await openFleetStore(stateDir, project, env);
  const unsettled = new Set((await store.reviewed(items)).map(({ run }) => run));
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
