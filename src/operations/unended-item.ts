import type { Changeset } from "../changes/model/changeset.ts";
import type { FleetStores } from "../fleet/fleet-stores.ts";
import { printableLine } from "../text/visible.ts";
import { RequestError } from "./request-error.ts";

/**
 * What an item left whose process died belongs to its fleet, which finishes it, or runs the item again.
 *
 * @throws RequestError CHANGESET_BUSY if the item has not ended, or if that cannot be found out
 */
export async function expectEnded({ id, run, project, fleet }: Changeset, stores: FleetStores): Promise<void> {
  if (fleet === undefined) return;
  const why = await stores.withStoreOf(fleet, project, async (store) => {
    if (store === "removed") return null;
    if (store === "elsewhere")
      return `fleet ${fleet.id} in the database ${printableLine(fleet.store ?? "")}, which is not in use now: name it as \`queue\` in corral.yaml, or in CORRAL_QUEUE`;
    const [item] = await store.items(fleet.id, {}, { after: fleet.item - 1, limit: 1 });
    if (item?.index !== fleet.item || item.run !== run || item.state === "done") return null;
    return `item ${printableLine(item.key)} of fleet ${fleet.id}, which has not ended; if it does not run any more, \`corral fleet resume\` ends it`;
  });
  if (why !== null) throw new RequestError("CHANGESET_BUSY", id, `changeset ${id} is of ${why}`);
}
