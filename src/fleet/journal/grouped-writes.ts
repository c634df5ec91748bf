import { hasCode } from "../../platform/errno.ts";
import type { Database } from "./database.ts";

interface Waiting {
  readonly write: () => void;
  readonly committed: () => void;
  readonly failed: (error: unknown) => void;
}

/** What is asked for within one turn of the event loop goes into one transaction; never more than this. */
const MAX_GROUP = 1000;

/** Writes in the order in which they were asked for, many in one transaction. */
export class GroupedWrites {
  readonly #db: Database;
  #waiting: Waiting[] = [];
  #scheduled: NodeJS.Immediate | null = null;
  #isClosed = false;

  constructor(db: Database) {
    this.#db = db;
  }

  /** Settles when it is committed. `write` must not wait, and may be called twice: what one throws undoes its group. */
  add<T>(write: () => T): Promise<T> {
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
    // What the database cannot do for all of them it cannot do for one, and it may have been waited for already.
    const isOnes = group.length > 1 && !isOfDatabase(failure.error);
    for (const one of group) {
      const own = isOnes ? this.#commit([one]) : failure;
      if (own !== null) one.failed(own.error);
    }
  }

  /** Null where it is committed, and told. */
  #commit(group: readonly Waiting[]): { readonly error: unknown } | null {
    try {
      this.#db.transaction(() => {
        for (const { write } of group) write();
      });
    } catch (error) {
      return { error };
    }
    for (const { committed } of group) committed();
    return null;
  }

  /** Writes what waits, and takes nothing after that. */
  close(): void {
    this.flush();
    this.#isClosed = true;
  }
}

function isOfDatabase(error: unknown): boolean {
  return hasCode(error, "ERR_SQLITE_ERROR");
}
