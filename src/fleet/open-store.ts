import { queueOf } from "../declarations/queue.ts";
import { lockOwner } from "../state/owner.ts";
import { projectPaths } from "../state/state-paths.ts";
import { FleetJournal } from "./journal/journal.ts";
import type { WhileAway } from "./model/queue.ts";
import type { FleetStore } from "./model/store.ts";

/**
 * Opens the store of a project's fleets for this process: the database that `env` or the project names, else the journal of this
 * machine. `projectDir`: absolute, without symbolic links. `env`: Corral's own environment.
 * `away`: how this process waits for a database; absent: a minute.
 */
export async function openFleetStore(
  stateDir: string,
  projectDir: string,
  env: Readonly<Record<string, string | undefined>>,
  away?: WhileAway,
): Promise<FleetStore> {
  return await openStoreAt(stateDir, projectDir, await queueOf(projectDir, env), away);
}

/** The same, in this database; null: in the journal of this machine. */
export async function openStoreAt(
  stateDir: string,
  projectDir: string,
  queue: string | null,
  away?: WhileAway,
): Promise<FleetStore> {
  if (queue === null) return await openFleetStoreAt(projectPaths(stateDir, projectDir).fleets);
  const { openQueue } = await import("./postgres/open-queue.ts");
  return await openQueue(queue, stateDir, projectDir, away);
}

/** The journal of this machine by the path of its database. */
export async function openFleetStoreAt(path: string): Promise<FleetStore> {
  const { name: self, isDead } = lockOwner();
  return await FleetJournal.open(path, { self, isDead });
}
