import { join } from "node:path";
import { lockOwner } from "../state/owner.ts";
import { stateNameOf } from "../state/state-name.ts";
import { FleetJournal } from "./journal/journal.ts";

/** The journal of a project's fleets, as this process works on it. */
export async function openJournal(stateDir: string, projectDir: string): Promise<FleetJournal> {
  const { name: self, isDead } = lockOwner();
  return await FleetJournal.open(journalPath(stateDir, projectDir), { self, isDead });
}

/** Where the fleets of one project are kept. `projectDir`: absolute, with no symbolic link in it. */
export function journalPath(stateDir: string, projectDir: string): string {
  return join(stateDir, "fleets", stateNameOf(projectDir), "fleets.db");
}
