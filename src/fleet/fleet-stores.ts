import type { ChangedItem } from "../changes/model/changeset.ts";
import { queueOf } from "../declarations/queue.ts";
import type { FleetStore } from "./model/store.ts";
import { openStoreAt } from "./open-store.ts";

/** A store that no step has used for so long is closed. */
const IDLE_MS = 1000;
/** Stores that are open at once; those of further projects are closed as soon as they are not in use. */
const MAX_IDLE = 8;

interface Opened {
  readonly store: Promise<FleetStore>;
  users: number;
  closing: NodeJS.Timeout | undefined;
}

/** The stores of fleets that the steps of one command use: each is opened once, since a database takes time and has few connections. */
export class FleetStores implements AsyncDisposable {
  readonly #stateDir: string;
  readonly #env: Readonly<Record<string, string | undefined>>;
  readonly #opened = new Map<string, Opened>();

  /** `env`: Corral's own environment. */
  constructor(stateDir: string, env: Readonly<Record<string, string | undefined>>) {
    this.#stateDir = stateDir;
    this.#env = env;
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
    await Promise.all([...this.#opened.keys()].map((place) => this.#close(place)));
  }

  async #using<T>(projectDir: string, queue: string | null, act: (store: FleetStore) => Promise<T>): Promise<T> {
    const place = JSON.stringify([projectDir, queue]);
    const opened = this.#opened.get(place) ?? {
      store: openStoreAt(this.#stateDir, projectDir, queue),
      users: 0,
      closing: undefined,
    };
    this.#opened.set(place, opened);
    clearTimeout(opened.closing);
    opened.users += 1;
    let hasFailed = true;
    try {
      const result = await act(await opened.store);
      hasFailed = false;
      return result;
    } finally {
      opened.users -= 1;
      // What failed is opened anew.
      if (opened.users === 0) {
        if (hasFailed || this.#opened.size > MAX_IDLE) await this.#close(place);
        else opened.closing = setTimeout(() => void this.#close(place), IDLE_MS).unref();
      }
    }
  }

  async #close(place: string): Promise<void> {
    const opened = this.#opened.get(place);
    this.#opened.delete(place);
    clearTimeout(opened?.closing);
    // One that could not be opened was reported to its user.
    const store = await opened?.store.catch(() => null);
    await store?.[Symbol.asyncDispose]();
  }
}
