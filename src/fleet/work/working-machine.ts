import { newRunId } from "../../run/model/job.ts";
import type { Taken } from "../model/queue.ts";
import type { AttemptDelivery, ClaimedWork, Membership, Withdrawn, WorkStore } from "../model/work.ts";
import { Semaphore } from "../running/fleet-parts.ts";
import { type AttemptName, type HostedFleet, HostedFleets, type HostFleet, type OnWorkEvent } from "./hosted-fleets.ts";

interface MachineParts {
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
class WorkedAttempt {
  /** Never rejects. */
  readonly done: Promise<EndedAttempt>;
  readonly #parts: MachineParts;
  readonly #name: AttemptName;
  readonly #ends = new AbortController();
  #begunAtMs: number | null = null;
  #why: string | null = null;

  constructor(parts: MachineParts) {
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

  async #deliver(delivery: AttemptDelivery, durationMs: number): Promise<void> {
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

export interface WorkingParts {
  readonly membership: Membership;
  readonly store: Pick<WorkStore, "wake">;
  readonly slots: number;
  readonly host: HostFleet;
  readonly onEvent: OnWorkEvent;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
  readonly pause: (ms: number) => Promise<void>;
  /** Claims no more, gives back waiting items, and lets running ones end. */
  readonly drain: AbortSignal;
  /** Ends everything at once. */
  readonly stop: AbortSignal;
}

/** The longest pause between two looks at the store. */
const IDLE_MS = 1000;
/** The shortest: changes in quick succession lead to one look. */
const MIN_MS = 50;
/** Items whose cells are prepared while others run; only if items end so quickly that no other machine waits for them. */
const MAX_WARM = 4;
const QUICK_MS = 5000;
/** A machine that lacks something takes no items for so long, and longer each time. */
const FIRST_REST_MS = 2000;
const LONGEST_REST_MS = 60_000;

/** How a machine's work ended. `lost`: its lease has ended, and it may join again. */
export type WorkEnd = "drained" | "stopped" | "lost";

/**
 * A process that runs items of fleets that others own: it looks for fleets that agree with what is declared here, claims as many items
 * as it has room for, and delivers what they brought. It decides nothing and applies nothing.
 */
export class WorkingMachine {
  readonly #parts: WorkingParts;
  readonly #fleets: HostedFleets;
  readonly #semaphore: Semaphore;
  readonly #attempts = new Map<string, WorkedAttempt>();
  readonly #runs = new Set<string>();
  #wake: () => void = () => {};
  #offersAt = Number.NEGATIVE_INFINITY;
  /** The store said that something has changed. */
  #isTold = true;
  /** Whether items may wait in the store. */
  #mayHaveMore = false;
  /** How long items of late took; null: none has ended. */
  #recentMs: number | null = null;
  #restUntil = 0;
  #restMs = FIRST_REST_MS;
  #isTroubled = false;

  constructor(parts: WorkingParts) {
    this.#parts = parts;
    this.#semaphore = new Semaphore(parts.slots);
    const { membership, host, onEvent, now } = parts;
    this.#fleets = new HostedFleets({ membership, host, onEvent, now, onChange: () => this.#opened() });
  }

  /** Runs until it is drained, stopped or lost, and everything that ran has ended. */
  async run(): Promise<WorkEnd> {
    const { drain, stop, membership } = this.#parts;
    const signals: [AbortSignal, () => void][] = [
      [drain, () => this.#drain()],
      [stop, () => this.#endAll("it was stopped")],
      [membership.lost, () => this.#lose()],
    ];
    for (const [signal, act] of signals) {
      signal.addEventListener("abort", act, { once: true });
      if (signal.aborted) act();
    }
    try {
      while (!this.#isOver) {
        await this.#round();
        await this.#changedOrLater();
      }
      return membership.lost.aborted ? "lost" : stop.aborted ? "stopped" : "drained";
    } finally {
      for (const [signal, act] of signals) signal.removeEventListener("abort", act);
      await Promise.all([...this.#attempts.values()].map(({ done }) => done));
      await this.#fleets[Symbol.asyncDispose]();
    }
  }

  get #isOver(): boolean {
    const { drain, stop, membership } = this.#parts;
    return membership.lost.aborted || stop.aborted || (drain.aborted && this.#attempts.size === 0);
  }

  /** One look at the store, and as many claims as there is room for. */
  async #round(): Promise<void> {
    const { membership, drain, now } = this.#parts;
    try {
      if (this.#isTold || now() - this.#offersAt >= IDLE_MS) {
        this.#isTold = false;
        this.#withdraw(await membership.withdrawn());
        const offers = drain.aborted ? [] : await membership.offers();
        this.#offersAt = now();
        if (!drain.aborted) this.#fleets.follow(offers);
        this.#mayHaveMore = offers.some(({ hasMore }) => hasMore);
      }
      await this.#claim();
      this.#isTroubled = false;
    } catch (error) {
      if (this.#isOver) return;
      // The store does not answer: running items continue until the lease has ended.
      if (!this.#isTroubled) this.#trouble(`the queue does not answer: ${(error as Error).message}`);
      this.#isTroubled = true;
      await this.#parts.pause(IDLE_MS);
    }
  }

  async #claim(): Promise<void> {
    const { membership, drain, now } = this.#parts;
    const room = this.#room;
    const fleets = this.#fleets.open;
    const mayClaim = !drain.aborted && !this.#isOver && now() >= this.#restUntil;
    if (!mayClaim || !this.#mayHaveMore || room <= 0 || fleets.length === 0) return;
    const claimed = await membership.claim(fleets, room, () => ({ run: newRunId(), cell: null }));
    // The store's word: more than was asked for would have cells at once, and two attempts with one id would share their folders.
    for (const item of claimed.slice(0, room)) if (!this.#isHere(item)) this.#begin(item);
    this.#mayHaveMore = claimed.length === room;
  }

  #isHere(item: ClaimedWork): boolean {
    return this.#runs.has(item.run) || this.#attempts.has(nameOf({ ...item, index: item.request.index }));
  }

  get #room(): number {
    const isQuick = this.#recentMs !== null && this.#recentMs < QUICK_MS;
    const { slots } = this.#parts;
    return slots + (isQuick ? Math.min(MAX_WARM, slots) : 0) - this.#attempts.size;
  }

  #begin(item: ClaimedWork): void {
    const { membership, onEvent, pause, now } = this.#parts;
    const name = nameOf({ ...item, index: item.request.index });
    const place = this.#fleets.take(item.fleet);
    const attempt = new WorkedAttempt({
      item,
      fleet: place?.fleet ?? null,
      membership,
      semaphore: this.#semaphore,
      onEvent,
      pause,
      now,
    });
    this.#attempts.set(name, attempt);
    this.#runs.add(item.run);
    const { drain } = this.#parts;
    // It was claimed while the user stopped this machine.
    if (drain.aborted) attempt.endIfWaiting(STOPPED);
    void attempt.done.then(({ durationMs, isUnwell }) => {
      place?.done();
      this.#attempts.delete(name);
      this.#runs.delete(item.run);
      if (durationMs !== null) this.#recentMs = ((this.#recentMs ?? durationMs) * 3 + durationMs) / 4;
      if (isUnwell) this.#rest();
      else if (durationMs !== null) this.#restMs = FIRST_REST_MS;
      this.#changed();
    });
  }

  /** This machine lacks something that all items need: others take them meanwhile. */
  #rest(): void {
    const { now } = this.#parts;
    if (now() < this.#restUntil) return;
    this.#restUntil = now() + this.#restMs;
    this.#restMs = Math.min(2 * this.#restMs, LONGEST_REST_MS);
  }

  #withdraw(withdrawn: readonly Withdrawn[]): void {
    for (const one of withdrawn) {
      const attempt = this.#attempts.get(nameOf(one));
      if (attempt === undefined) continue;
      if (one.why === "drained") attempt.endIfWaiting("its fleet starts no more items");
      else attempt.end(one.why === "fenced" ? "another attempt counts" : "its fleet was cancelled");
    }
  }

  #drain(): void {
    this.#parts.onEvent({ type: "draining", why: STOPPED });
    for (const attempt of this.#attempts.values()) attempt.endIfWaiting(STOPPED);
    this.#changed();
  }

  #lose(): void {
    this.#parts.onEvent({ type: "lost" });
    this.#endAll("the lease of this machine has ended");
  }

  #endAll(why: string): void {
    for (const attempt of this.#attempts.values()) attempt.end(why);
    this.#changed();
  }

  /** Its items were not claimed before. */
  #opened(): void {
    this.#isTold = true;
    this.#changed();
  }

  #changed(): void {
    this.#wake();
  }

  /** Until something of this machine or of the store has changed, or some time has passed. */
  async #changedOrLater(): Promise<void> {
    if (this.#isOver) return;
    const { store, now, pause } = this.#parts;
    const begunAt = now();
    const ends = new AbortController();
    const own = new Promise<"own">((resolve) => {
      this.#wake = () => resolve("own");
    });
    const told = store.wake(IDLE_MS, ends.signal).then(() => "told" as const);
    const first = await Promise.race([own, told]);
    ends.abort();
    this.#wake = () => {};
    if (first === "own") return;
    this.#isTold = true;
    const passed = now() - begunAt;
    if (passed < MIN_MS) await pause(MIN_MS - passed);
  }

  #trouble(detail: string): void {
    this.#parts.onEvent({ type: "trouble", detail });
  }
}

const STOPPED = "this machine was stopped";

function nameOf({ fleet, index, attempt }: Pick<Withdrawn, "fleet" | "index" | "attempt">): string {
  return `${fleet}:${index}:${attempt}`;
}
