import { FleetStores } from "../fleet/fleet-stores.ts";
import type { PendingItem } from "../fleet/model/item.ts";
import { openFleetStore } from "../fleet/open-store.ts";
import { changesetStore } from "../run/changes/into-project.ts";
import { type FleetPlace, fleetIn } from "./fleets.ts";
import { recordEnded } from "./reviewed-items.ts";

/** The items of a fleet whose changes wait. The run of an item is the id of its changeset. */
export interface PendingItems {
  readonly fleet: string;
  readonly count: number;
  /** In the order of the manifest, read in pages: few are in memory, and each caller iterates anew. */
  each(): AsyncGenerator<PendingItem, void, undefined>;
}

/**
 * `asked`: the fleet's id, a prefix of it, or `latest`. `decides`: for a command that decides on them; only then an item whose
 * changes are not there ends as discarded. @throws RequestError UNKNOWN_FLEET, AMBIGUOUS_ID
 */
export async function pendingItems(
  { stateDir, projectDir, engineEnv }: FleetPlace,
  asked: string,
  { decides = false }: { readonly decides?: boolean } = {},
): Promise<PendingItems> {
  const changesets = changesetStore(stateDir);
  await using stores = new FleetStores(stateDir, engineEnv);
  await recordEnded(changesets, stores);
  await using store = await openFleetStore(stateDir, projectDir, engineEnv);
  const { id, counts } = await fleetIn(store, asked);
  return {
    fleet: id,
    count: counts.pending,
    async *each() {
      await using reading = await openFleetStore(stateDir, projectDir, engineEnv);
      for await (const item of reading.pending(id)) {
        if (changesets.isKnown(item.run)) yield item;
        // It was removed by hand, or another process recorded its end since the page was read; then this changes nothing.
        else if (decides)
          await reading.reviewed([{ fleet: id, item: item.index, run: item.run, counts: { discarded: 1 } }]);
      }
    },
  };
}
