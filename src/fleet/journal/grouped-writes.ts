import { hasCode } from "../../platform/errno.ts";
import type { Database } from "./database.ts";

interface Waiting {
  readonly write: () => void;
  readonly isDurable: boolean;
  readonly committed: () => void;
  readonly failed: (error: unknown) => void;
}

/** The most writes in one transaction. Writes of one turn of the event loop share one. */
const MAX_GROUP = 1000;

/** Executes writes in order, many in one transaction. */
export class GroupedWrites {
  readonly #db: Database;
  #waiting: Waiting[] = [];
  #scheduled: NodeJS.Immediate | null = null;
  #isClosed = false;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Settles when the write is committed. `write` must not wait and may be called twice: an error rolls back its group. `isDurable`:
   * it also survives a power failure, with all before it.
   */
  add<T>(write: () => T, isDurable = false): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    if (this.#isClosed) {
      reject(new Error("the journal of fleets is closed"));
      return promise;
    }
    let value: T;
    this.#waiting.push({
      write: () => {
        value = write();
      },
      isDurable,
      committed: () => resolve(value),
      failed: reject,
    });
    if (this.#waiting.length >= MAX_GROUP) this.flush();
    else this.#scheduled ??= setImmediate(() => this.flush());
    return promise;
  }

  flush(): void {
    if (this.#scheduled !== null) clearImmediate(this.#scheduled);
    this.#scheduled = null;
    const group = this.#waiting;
    this.#waiting = [];
    if (group.length === 0) return;
    const failure = this.#commit(group);
    if (failure === null) return;
    // After a database error the single writes would fail too, perhaps after another long wait.
    const isOnes = group.length > 1 && !isOfDatabase(failure.error);
    for (const one of group) {
      const own = isOnes ? this.#commit([one]) : failure;
      if (own !== null) one.failed(own.error);
    }
  }

  /** Null if the group was committed and its promises were resolved. */
  #commit(group: readonly Waiting[]): { readonly error: unknown } | null {
    const writeAll = (): void => {
      for (const { write } of group) write();
    };
    try {
      if (group.some(({ isDurable }) => isDurable)) this.#db.durably(writeAll);
      else this.#db.transaction(writeAll);
    } catch (error) {
      return { error };
    }
    for (const { committed } of group) committed();
    return null;
  }

  /** Executes waiting writes and rejects later ones. */
  close(): void {
    this.flush();
    this.#isClosed = true;
  }
}

function isOfDatabase(error: unknown): boolean {
  return hasCode(error, "ERR_SQLITE_ERROR");
}
