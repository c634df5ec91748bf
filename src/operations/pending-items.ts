import type { PendingItem } from "../fleet/journal/reviewed.ts";
import { openJournal } from "../fleet/open-journal.ts";
import { changesetStore } from "../run/changes/into-project.ts";
import type { ProjectPlace } from "./audit.ts";
import { fleetIn } from "./fleets.ts";
import { recordEnded } from "./reviewed-items.ts";

/** The items of a fleet whose changes wait. The run of an item is the id of its changeset. */
export interface PendingItems {
  readonly fleet: string;
  readonly count: number;
  /** In the order of the manifest, read in pages: few are in memory, and each caller iterates anew. */
  each(): AsyncGenerator<PendingItem, void, undefined>;
}

/** `asked`: the fleet's id, a prefix of it, or `latest`. @throws RequestError UNKNOWN_FLEET, AMBIGUOUS_ID */
export async function pendingItems({ stateDir, projectDir }: ProjectPlace, asked: string): Promise<PendingItems> {
  const store = changesetStore(stateDir);
  await recordEnded(store, stateDir);
  using journal = await openJournal(stateDir, projectDir);
  const { id, counts } = fleetIn(journal, asked);
  return {
    fleet: id,
    count: counts.pending,
    async *each() {
      using reading = await openJournal(stateDir, projectDir);
      for (const item of reading.pending(id)) {
        if (store.isKnown(item.run)) yield item;
        // It was removed by hand, or another process recorded its end since the page was read; then this changes nothing.
        else reading.reviewed([{ fleet: id, item: item.index, run: item.run, counts: { discarded: 1 } }]);
      }
    },
  };
}
