import { lockOwner } from "../state/owner.ts";
import { projectPaths } from "../state/state-paths.ts";
import { FleetJournal } from "./journal/journal.ts";

/** Opens the journal of a project's fleets for this process. `projectDir`: absolute, without symbolic links. */
export async function openJournal(stateDir: string, projectDir: string): Promise<FleetJournal> {
  const { name: self, isDead } = lockOwner();
  return await FleetJournal.open(projectPaths(stateDir, projectDir).fleets, { self, isDead });
}
