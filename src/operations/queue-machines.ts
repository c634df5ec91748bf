import { FleetStores } from "../fleet/fleet-stores.ts";
import type { Machine, MachineFleet } from "../fleet/model/work.ts";
import type { FleetPlace } from "./fleets.ts";
import { RequestError } from "./request-error.ts";

/** Longer than the pause between two readings of metrics. */
const IDLE_MS = 5 * 60_000;

/** A machine of a queue. Its fleets are those of the project, with the project's folder. */
export interface ListedMachine extends Omit<Machine, "fleets"> {
  readonly fleets: readonly (MachineFleet & { readonly projectDir: string })[];
}

/** The machines of a project's queue, in the order of their names. @throws RequestError NO_QUEUE, QueueError */
export async function listMachines(place: FleetPlace): Promise<ListedMachine[]> {
  await using queues = new QueueMachines(place.stateDir, place.engineEnv);
  const machines = await queues.list([place.projectDir]);
  if (machines === null) throw new RequestError("NO_QUEUE", place.projectDir, NO_QUEUE);
  return machines;
}

/** The machines of queues, for a process that asks again and again: each queue is opened once, and asked once at a time. */
export class QueueMachines implements AsyncDisposable {
  readonly #stores: FleetStores;
  /** By the folder of the project. */
  readonly #asked = new Map<string, Promise<ListedMachine[] | null>>();

  /** `env`: Corral's own environment. */
  constructor(stateDir: string, env: FleetPlace["engineEnv"]) {
    this.#stores = new FleetStores(stateDir, env, IDLE_MS);
  }

  /** Of several projects, each once, in the order of their names. Null: none of them has a queue. @throws QueueError */
  async list(projectDirs: readonly string[]): Promise<ListedMachine[] | null> {
    const known = new Map<string, ListedMachine>();
    let hasQueue = false;
    for (const projectDir of projectDirs) {
      const machines = await this.#of(projectDir);
      hasQueue ||= machines !== null;
      for (const machine of machines ?? [])
        known.set(machine.id, { ...machine, fleets: [...(known.get(machine.id)?.fleets ?? []), ...machine.fleets] });
    }
    return hasQueue ? [...known.values()].toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0)) : null;
  }

  /** Who asks while an earlier question waits for the database gets the answer to that one. */
  async #of(projectDir: string): Promise<ListedMachine[] | null> {
    const earlier = this.#asked.get(projectDir);
    if (earlier !== undefined) return await earlier;
    const asked = this.#stores.withQueueOf(projectDir, async ({ work }) => {
      const machines = (await work?.machines()) ?? null;
      return (
        machines?.map((machine) => ({
          ...machine,
          fleets: machine.fleets.map((fleet) => ({ ...fleet, projectDir })),
        })) ?? null
      );
    });
    this.#asked.set(projectDir, asked);
    try {
      return await asked;
    } finally {
      this.#asked.delete(projectDir);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#stores[Symbol.asyncDispose]();
  }
}

const NO_QUEUE =
  "the project has no queue, so no other machine runs its items: write `queue: postgres://user@host/database` into corral.yaml, or set CORRAL_QUEUE";
