import { queueOf } from "../declarations/queue.ts";
import type { Machine, MachineFleet } from "../fleet/model/work.ts";
import { openFleetStore } from "../fleet/open-store.ts";
import type { FleetPlace } from "./fleets.ts";
import { RequestError } from "./request-error.ts";

/** A machine of a queue. Its fleets are those of the project, with the project's folder. */
export interface ListedMachine extends Omit<Machine, "fleets"> {
  readonly fleets: readonly (MachineFleet & { readonly projectDir: string })[];
}

/** The machines of a project's queue, in the order of their names. @throws RequestError NO_QUEUE, QueueError */
export async function listMachines(place: FleetPlace): Promise<ListedMachine[]> {
  const machines = await machinesOfQueues([place]);
  if (machines === null) throw new RequestError("NO_QUEUE", place.projectDir, NO_QUEUE);
  return machines;
}

/** The machines of the queues of several projects, each once. Null: none of them has a queue. @throws QueueError */
export async function machinesOfQueues(places: readonly FleetPlace[]): Promise<ListedMachine[] | null> {
  const known = new Map<string, ListedMachine>();
  let hasQueue = false;
  for (const { stateDir, projectDir, engineEnv } of places) {
    // A project that has never had a fleet gets no journal by being asked.
    if ((await queueOf(projectDir, engineEnv)) === null) continue;
    await using store = await openFleetStore(stateDir, projectDir, engineEnv);
    if (store.work === null) continue;
    hasQueue = true;
    for (const machine of await store.work.machines()) {
      const fleets = machine.fleets.map((fleet) => ({ ...fleet, projectDir }));
      known.set(machine.id, { ...machine, fleets: [...(known.get(machine.id)?.fleets ?? []), ...fleets] });
    }
  }
  return hasQueue ? [...known.values()].toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)) : null;
}

const NO_QUEUE =
  "the project has no queue, so no other machine runs its items: write `queue: postgres://user@host/database` into corral.yaml, or set CORRAL_QUEUE";
