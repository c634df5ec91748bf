import { lockOwner } from "../state/owner.ts";
import { projectPaths } from "../state/state-paths.ts";
import { FleetJournal } from "./journal/journal.ts";
import type { FleetStore } from "./model/store.ts";

/** Opens the store of a project's fleets for this process. `projectDir`: absolute, without symbolic links. */
export async function openFleetStore(stateDir: string, projectDir: string): Promise<FleetStore> {
  return await openFleetStoreAt(projectPaths(stateDir, projectDir).fleets);
}

/** The same by the path of its database. */
export async function openFleetStoreAt(path: string): Promise<FleetStore> {
  const { name: self, isDead } = lockOwner();
  return await FleetJournal.open(path, { self, isDead });
}
