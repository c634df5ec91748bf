import type { ChangedItem } from "../changes/model/changeset.ts";
import { queueOf } from "../declarations/queue.ts";
import { lockOwner } from "../state/owner.ts";
import { projectPaths } from "../state/state-dir.ts";
import { FleetJournal } from "./journal/journal.ts";
import type { WhileAway } from "./model/queue.ts";
import type { FleetStore } from "./model/store.ts";

const IDLE_MS = 1000;
/** Stores that are open at once; those of further projects are closed as soon as they are not in use. */
const MAX_IDLE = 8;

interface Opened {
  readonly store: Promise<FleetStore>;
  users: number;
  /** A user had an error: no further one gets it. */
  hasFailed: boolean;
  closing: NodeJS.Timeout | undefined;
}

/** The stores of fleets that steps of one process use: each is opened once, since a database takes time and has few connections. */
export class FleetStores implements AsyncDisposable {
  readonly #stateDir: string;
  readonly #env: Readonly<Record<string, string | undefined>>;
  readonly #idleMs: number;
  readonly #opened = new Map<string, Opened>();

  /** `env`: Corral's own environment. A store that no step has used for `idleMs` is closed. */
  constructor(stateDir: string, env: Readonly<Record<string, string | undefined>>, idleMs = IDLE_MS) {
    this.#stateDir = stateDir;
    this.#env = env;
    this.#idleMs = idleMs;
  }

  /** Null, without asking: the project names no database. */
  async withQueueOf<T>(projectDir: string, act: (store: FleetStore) => Promise<T>): Promise<T | null> {
    const queue = await queueOf(projectDir, this.#env);
    return queue === null ? null : await this.#using(projectDir, queue, act);
  }

  /**
   * Acts on the store that has the fleet of an item: the one that is named now, else the journal, where fleets were before a database
   * was named. `removed`: the store in which it was made has it no more. `elsewhere`: that store is not named now.
   */
  async withStoreOf<T>(
    { id, store: database }: Pick<ChangedItem, "id" | "store">,
    projectDir: string,
    act: (store: FleetStore | "removed" | "elsewhere") => Promise<T>,
  ): Promise<T> {
    const queue = await queueOf(projectDir, this.#env);
    return await this.#using(projectDir, queue, async (named) => {
      if ((await named.find(id)) !== null) return await act(named);
      if (named.database === (database ?? null)) return await act("removed");
      if (database !== undefined) return await act("elsewhere");
      return await this.#using(projectDir, null, async (journal) =>
        act((await journal.find(id)) === null ? "removed" : journal),
      );
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#opened].map(([place, opened]) => this.#close(place, opened)));
  }

  async #using<T>(projectDir: string, queue: string | null, act: (store: FleetStore) => Promise<T>): Promise<T> {
    const place = JSON.stringify([projectDir, queue]);
    const opened = this.#opened.get(place) ?? {
      store: openStoreAt(this.#stateDir, projectDir, queue),
      users: 0,
      hasFailed: false,
      closing: undefined,
    };
    this.#opened.set(place, opened);
    clearTimeout(opened.closing);
    opened.users += 1;
    try {
      return await act(await opened.store);
    } catch (error) {
      // The next user opens it anew, also if others still use this one.
      opened.hasFailed = true;
      if (this.#opened.get(place) === opened) this.#opened.delete(place);
      throw error;
    } finally {
      opened.users -= 1;
      if (opened.users === 0) await this.#leave(place, opened);
    }
  }

  async #leave(place: string, opened: Opened): Promise<void> {
    if (opened.hasFailed || this.#opened.size > MAX_IDLE) return await this.#close(place, opened);
    // A connection that cannot be closed in order is lost already.
    const close = (): void => void this.#close(place, opened).catch(() => {});
    if (this.#opened.get(place) === opened) opened.closing = setTimeout(close, this.#idleMs).unref();
  }

  async #close(place: string, opened: Opened): Promise<void> {
    if (this.#opened.get(place) === opened) this.#opened.delete(place);
    clearTimeout(opened.closing);
    // One that could not be opened was reported to its user.
    const store = await opened.store.catch(() => null);
    await store?.[Symbol.asyncDispose]();
  }
}

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
  const { openQueue } = await import("./postgres/postgres-store.ts");
  return await openQueue(queue, stateDir, projectDir, away);
}

/** The journal of this machine by the path of its database. */
export async function openFleetStoreAt(path: string): Promise<FleetStore> {
  const { name: self, isDead } = lockOwner();
  return await FleetJournal.open(path, { self, isDead });
}
