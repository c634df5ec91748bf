import { join } from "node:path";
import { ChangesetStore } from "../../src/changes/store/changeset-store.ts";
import type { FleetStore } from "../../src/fleet/model/store.ts";
import { unrunResult } from "../../src/fleet/running/item-result.ts";
import { lockOwner } from "../../src/state/owner.ts";
import { stagedFolder } from "../changes/staged-folder.ts";
import { temporaryFolder } from "../files/temporary-folder.ts";
import { items, noCollisions, SPEC } from "../fleet/journal/journal-fixture.ts";

/** A fleet of one item that made `new.txt`, which waits in the state directory, as a real run leaves it. */
export async function pendingFleet(
  store: FleetStore,
  { stateDir, projectDir }: { readonly stateDir: string; readonly projectDir: string },
  run: string,
  more: { readonly store?: string } = {},
): Promise<{ readonly fleet: string; readonly made: string; remove(): void }> {
  const fleet = await store.create(SPEC);
  await store.load(fleet, items(1), noCollisions);
  const queue = await store.queue(fleet);
  const [claimed] = (await queue.claim(1, () => ({ run, cell: null }))).items;
  if (claimed === undefined) throw new Error("nothing was claimed");
  const folder = temporaryFolder();
  const staged = stagedFolder({}, { "new.txt": "new\n" }, folder);
  const { index } = claimed.request;
  const changeset = { ...staged.changeset(run), project: projectDir, fleet: { id: fleet, item: index, ...more } };
  await new ChangesetStore(stateDir, lockOwner()).keep(changeset, "held", "it waits");
  const error = { code: "CHANGES_HELD", message: "It waits." };
  const held = { id: run, counts: { held: 1 } };
  const { attempt } = claimed;
  const result = { ...unrunResult(claimed, "pending"), run, attempt, exitCode: 0, error, changeset: held };
  await queue.settle(index, attempt, { result, cacheKey: null, streams: { stdout: "", stderr: "" } });
  if ((await store.end(fleet)) === null) throw new Error("the fleet has not ended");
  return { fleet, made: join(staged.target, "new.txt"), remove: folder.remove };
}
