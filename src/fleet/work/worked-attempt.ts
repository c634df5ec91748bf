import type { Taken } from "../model/queue.ts";
import type { ClaimedWork, Delivery, Membership } from "../model/work.ts";
import type { Semaphore } from "../semaphore.ts";
import type { HostedFleet } from "./hosting.ts";
import type { AttemptName, OnWorkEvent } from "./work-events.ts";

interface Parts {
  readonly item: ClaimedWork;
  /** Null: it was closed while the item was claimed. */
  readonly fleet: HostedFleet | null;
  readonly membership: Pick<Membership, "deliver" | "giveBack" | "lost">;
  readonly semaphore: Semaphore;
  readonly onEvent: OnWorkEvent;
  readonly pause: (ms: number) => Promise<void>;
  readonly now: () => number;
}

export interface EndedAttempt {
  /** From its turn to its end; null: it did not begin. */
  readonly durationMs: number | null;
  /** This machine lacks something that all items need. */
  readonly isUnwell: boolean;
}

/** How often a result is offered to a store that fails, and how often the item is given back after that: long after any lease. */
const MAX_DELIVERED = 60;
const MAX_GIVEN_BACK = 600;
const AGAIN_MS = 500;

/** One attempt at an item, from its claim until the store knows what came of it. */
export class WorkedAttempt {
  /** Never rejects. */
  readonly done: Promise<EndedAttempt>;
  readonly #parts: Parts;
  readonly #name: AttemptName;
  readonly #ends = new AbortController();
  #begunAtMs: number | null = null;
  #why: string | null = null;

  constructor(parts: Parts) {
    this.#parts = parts;
    const { fleet, request, attempt } = parts.item;
    this.#name = { fleet, index: request.index, key: request.key, attempt };
    this.done = this.#run();
  }

  end(why: string): void {
    this.#why ??= why;
    this.#ends.abort(new Error(why));
  }

  /** Unless it has begun. */
  endIfWaiting(why: string): void {
    if (this.#begunAtMs === null) this.end(why);
  }

  async #run(): Promise<EndedAttempt> {
    const { fleet, item, onEvent, now } = this.#parts;
    let endTurn: (() => void) | null = null;
    const turn = async (): Promise<void> => {
      endTurn = await this.#parts.semaphore.acquire(this.#ends.signal);
      this.#begunAtMs = now();
      onEvent({ type: "started", ...this.#name });
    };
    try {
      const brought = await fleet?.attempt(item, { signal: this.#ends.signal, turn });
      const durationMs = this.#begunAtMs === null ? null : now() - this.#begunAtMs;
      if (brought?.outcome === "delivery" && this.#why === null) {
        await this.#deliver(brought.delivery, durationMs ?? 0);
        return { durationMs, isUnwell: false };
      }
      const isUnwell = brought?.outcome === "given_up" && brought.isUnwell;
      const why = this.#why ?? (brought?.outcome === "given_up" ? brought.why : "its fleet is over");
      await this.#giveBack(why, 0);
      return { durationMs: null, isUnwell };
    } catch (error) {
      onEvent({ type: "trouble", detail: `item ${item.request.key}: ${(error as Error).message}` });
      await this.#giveBack("an internal error ended it", AFTER_BUG_MS);
      return { durationMs: null, isUnwell: true };
    } finally {
      (endTurn as (() => void) | null)?.();
    }
  }

  async #deliver(delivery: Delivery, durationMs: number): Promise<void> {
    const { membership, onEvent } = this.#parts;
    const { fleet, index, attempt } = this.#name;
    const taken = await this.#told(() => membership.deliver(fleet, index, attempt, delivery), MAX_DELIVERED);
    if (taken === "lost") onEvent({ type: "late", ...this.#name, reason: "the lease of this machine had ended" });
    else if (taken === "failed") await this.#giveBack("it could not be delivered", AFTER_BUG_MS);
    else if (taken.ok) onEvent({ type: "delivered", ...this.#name, status: delivery.result.status, durationMs });
    else onEvent({ type: "late", ...this.#name, reason: taken.reason });
  }

  /** After the lease has ended, other processes run it anyway. */
  async #giveBack(why: string, afterMs: number): Promise<void> {
    const { membership, onEvent } = this.#parts;
    const { fleet, index, attempt } = this.#name;
    await this.#told(() => membership.giveBack(fleet, index, attempt, afterMs), MAX_GIVEN_BACK);
    onEvent({ type: "given_back", ...this.#name, why, hasBegun: this.#begunAtMs !== null });
  }

  /** The store may be away for a moment. */
  async #told(tell: () => Promise<Taken>, most: number): Promise<Taken | "lost" | "failed"> {
    const { membership, onEvent, pause } = this.#parts;
    for (let told = 1; told <= most && !membership.lost.aborted; told += 1) {
      try {
        return await tell();
      } catch (error) {
        if (membership.lost.aborted) return "lost";
        if (told === 1) onEvent({ type: "trouble", detail: `item ${this.#name.key}: ${(error as Error).message}` });
        await pause(AGAIN_MS);
      }
    }
    return membership.lost.aborted ? "lost" : "failed";
  }
}

/** A bug that ends every attempt at an item does not fill the logs of all machines. */
const AFTER_BUG_MS = 10_000;
