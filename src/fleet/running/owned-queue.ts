import type {
  Claim,
  FleetQueue,
  IntendedSettlement,
  ItemCounts,
  NewAttempt,
  Settlement,
  Taken,
  Urgency,
} from "../model/queue.ts";

/** After a longer silence of the store it is asked again: a lease is longer, so no process has taken the fleet over before that. */
const FRESH_MS = 5000;

/** A process that was stopped, or cut off, for longer than its lease: another one owns the fleet. */
export class FleetTaken extends Error {
  override readonly name = "FleetTaken";

  constructor() {
    super("another process took over the fleet");
  }
}

/** The queue of a fleet, for as long as this process owns that. */
export class OwnedQueue implements FleetQueue {
  readonly #queue: FleetQueue;
  readonly #now: () => number;
  readonly #onTaken: (taken: FleetTaken) => void;
  /** When the last question was sent whose answer was that of an owner. */
  #ownedAt = Number.NEGATIVE_INFINITY;
  #taken: FleetTaken | null = null;

  /** `now`: milliseconds of a clock that only goes forward. `onTaken` is called once. */
  constructor(queue: FleetQueue, now: () => number, onTaken: (taken: FleetTaken) => void) {
    this.#queue = queue;
    this.#now = now;
    this.#onTaken = onTaken;
  }

  /**
   * Rejects with {@link FleetTaken} if another process owns the fleet. Called before anything is changed outside of the store that the
   * next owner works on too.
   */
  async confirm(): Promise<void> {
    if (this.#taken === null && this.#now() - this.#ownedAt > FRESH_MS)
      await this.claim(0, () => {
        throw new RangeError("none was asked for");
      });
    if (this.#taken !== null) throw this.#taken;
  }

  async claim(count: number, newAttempt: () => NewAttempt, urgency?: Urgency): Promise<Claim> {
    const claim = await this.#asked(this.#queue.claim(count, newAttempt, urgency));
    if (claim.fleet === "taken") this.#lose();
    return claim;
  }

  async begin(index: number, attempt: number, intent: IntendedSettlement): Promise<Taken> {
    return this.#seen(await this.#asked(this.#queue.begin(index, attempt, intent)));
  }

  async settle(index: number, attempt: number, settlement: Settlement, urgency?: Urgency): Promise<Taken> {
    return this.#seen(await this.#asked(this.#queue.settle(index, attempt, settlement, urgency)));
  }

  async requeue(index: number, attempt: number, notBeforeMs: number, why?: "failed" | "withdrawn"): Promise<Taken> {
    return this.#seen(await this.#asked(this.#queue.requeue(index, attempt, notBeforeMs, why)));
  }

  async counts(): Promise<ItemCounts> {
    return await this.#queue.counts();
  }

  async cancelQueued(why: string): Promise<number> {
    return await this.#queue.cancelQueued(why);
  }

  /** A process that was stopped meanwhile gets an answer of then. */
  async #asked<T>(asking: Promise<T>): Promise<T> {
    const askedAt = this.#now();
    const answer = await asking;
    this.#ownedAt = Math.max(this.#ownedAt, askedAt);
    return answer;
  }

  #seen(taken: Taken): Taken {
    if (!taken.ok && taken.code === "taken") this.#lose();
    return taken;
  }

  #lose(): void {
    if (this.#taken !== null) return;
    this.#taken = new FleetTaken();
    this.#onTaken(this.#taken);
  }
}
