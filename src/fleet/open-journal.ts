import { lockHolder } from "../state/owner.ts";
import { FleetJournal } from "./journal/journal.ts";
import { journalPath } from "./journal/place.ts";

/** The journal of a project's fleets, as this process works on it. */
export async function openJournal(stateDir: string, projectDir: string): Promise<FleetJournal> {
  const { name: self, isDead } = lockHolder();
  return await FleetJournal.open(journalPath(stateDir, projectDir), { self, isDead });
}
