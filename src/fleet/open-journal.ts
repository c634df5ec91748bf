import { lockOwner } from "../state/owner.ts";
import { projectPaths } from "../state/state-paths.ts";
import { FleetJournal } from "./journal/journal.ts";

/** Opens the journal of a project's fleets for this process. `projectDir`: absolute, without symbolic links. */
export async function openJournal(stateDir: string, projectDir: string): Promise<FleetJournal> {
  return await openJournalAt(projectPaths(stateDir, projectDir).fleets);
}

/** The same by the path of its database. */
export async function openJournalAt(path: string): Promise<FleetJournal> {
  const { name: self, isDead } = lockOwner();
  return await FleetJournal.open(path, { self, isDead });
}
