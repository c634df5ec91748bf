import type { ChangedItem } from "../changes/model/changeset.ts";
import { queueOf } from "../declarations/queue.ts";
import { lockOwner } from "../state/owner.ts";
import { projectPaths } from "../state/state-paths.ts";
import { FleetJournal } from "./journal/journal.ts";
import type { FleetStore } from "./model/store.ts";

/**
 * Opens the store of a project's fleets for this process: the database that `env` or the project names, else the journal of this
 * machine. `projectDir`: absolute, without symbolic links. `env`: Corral's own environment.
 */
export async function openFleetStore(
  stateDir: string,
  projectDir: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<FleetStore> {
  const queue = await queueOf(projectDir, env);
  if (queue === null) return await openFleetStoreAt(projectPaths(stateDir, projectDir).fleets);
  const { openQueue } = await import("./postgres/open-queue.ts");
  return await openQueue(queue, stateDir, projectDir);
}

/**
 * The store that has the fleet of an item: the one that is named now, else the journal, where fleets were before a database was
 * named. `removed`: the store in which it was made has it no more. `elsewhere`: that store is not named now.
 */
export async function openStoreOf(
  { id, store: database }: Pick<ChangedItem, "id" | "store">,
  stateDir: string,
  projectDir: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<FleetStore | "removed" | "elsewhere"> {
  const named = await openFleetStore(stateDir, projectDir, env);
  if (await has(named, id)) return named;
  if (named.database === (database ?? null)) return "removed";
  if (database !== undefined) return "elsewhere";
  const journal = await openFleetStoreAt(projectPaths(stateDir, projectDir).fleets);
  return (await has(journal, id)) ? journal : "removed";
}

/** A store that has it not is closed. */
async function has(store: FleetStore, fleet: string): Promise<boolean> {
  let isThere = false;
  try {
    isThere = (await store.find(fleet)) !== null;
  } finally {
    if (!isThere) await store[Symbol.asyncDispose]();
  }
  return isThere;
}

/** The journal of this machine by the path of its database. */
export async function openFleetStoreAt(path: string): Promise<FleetStore> {
  const { name: self, isDead } = lockOwner();
  return await FleetJournal.open(path, { self, isDead });
}
