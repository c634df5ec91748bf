import { QueueError, type Urgency } from "../model/queue.ts";

/** The most writes in one transaction. */
const MAX_GROUP = 1000;
/** The longest wait of a write that is wanted `soon` for others. */
const SOON_MS = 20;

interface Waiting<Write> {
  readonly write: Write;
  /** When it was asked for. */
  readonly at: number;
  readonly settle: (answer: unknown) => void;
  readonly fail: (error: unknown) => void;
}

/** The outcome of one write: its answer, or its error. */
export type WriteOutcome = { readonly value: unknown } | { readonly error: unknown };

/** Executes writes of either store in order, many in one transaction: those that come while one is committed are in the next one. */
export class GroupCommit<Write> {
  readonly #commit: (writes: readonly Write[]) => Promise<readonly WriteOutcome[]>;
  readonly #most: number;
  #waiting: Waiting<Write>[] = [];
  #running: Promise<void> | null = null;
  #isClosed = false;
  /** Ends the wait for others, if there is one. */
  #hurry: () => void = () => {};
  #isUrgent = false;

  /** `commit`: commits all or, if it rejects, none. `most`: at once. */
  constructor(commit: (writes: readonly Write[]) => Promise<readonly WriteOutcome[]>, most = MAX_GROUP) {
    this.#commit = commit;
    this.#most = most;
  }

  /** Settles when the write is committed. One that is wanted `now` takes those along that wait for others. */
  add<T>(write: Write, urgency: Urgency = "now"): Promise<T> {
    if (this.#isClosed) return Promise.reject(new QueueError("the store of fleets is closed"));
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const at = performance.now();
    this.#waiting.push({ write, at, settle: resolve as (answer: unknown) => void, fail: reject });
    if (urgency === "now") this.#urge();
    this.#running ??= this.#run();
    return promise;
  }

  /** When everything that was asked for before is committed, or failed. */
  async flushed(): Promise<void> {
    this.#urge();
    await this.#running;
  }

  /** Executes waiting writes and rejects later ones. */
  async close(): Promise<void> {
    this.#isClosed = true;
    this.#urge();
    await this.#running;
  }

  async #run(): Promise<void> {
    while (this.#waiting.length > 0) {
      // What is asked for in the same turn of the event loop is in one transaction.
      await turn();
      await this.#gathered();
      this.#isUrgent = false;
      while (this.#waiting.length > this.#most) await this.#take(this.#waiting.splice(0, this.#most));
      await this.#take(this.#waiting.splice(0));
    }
    this.#isUrgent = false;
    this.#running = null;
  }

  #urge(): void {
    this.#isUrgent = true;
    this.#hurry();
  }

  /** When one of those that wait is wanted now, or has waited long enough. */
  async #gathered(): Promise<void> {
    const [first] = this.#waiting;
    if (this.#isUrgent || this.#isClosed || first === undefined) return;
    const leftMs = first.at + SOON_MS - performance.now();
    if (leftMs <= 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#hurry = resolve;
    const timer = setTimeout(resolve, leftMs);
    await promise;
    clearTimeout(timer);
    this.#hurry = () => {};
    await turn();
  }

  async #take(group: readonly Waiting<Write>[]): Promise<void> {
    try {
      const answers = await this.#commit(group.map(({ write }) => write));
      for (const [index, { settle, fail }] of group.entries()) {
        const answer = answers[index] ?? { error: new Error("a write has no answer") };
        if ("error" in answer) fail(answer.error);
        else settle(answer.value);
      }
    } catch (error) {
      // If the database is away, the single writes would fail too, after another long wait.
      if (group.length === 1 || error instanceof QueueError) for (const { fail } of group) fail(error);
      else for (const one of group) await this.#take([one]);
    }
  }
}

function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
