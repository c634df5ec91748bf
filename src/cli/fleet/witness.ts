import type { ItemResult } from "../../fleet/model/item.ts";
import { isPendingStatus, isSuccess } from "../../fleet/report/measures/gathered.ts";
import type { FleetEvent } from "../../fleet/running/events.ts";

/** The most of each list that is ever shown. */
const MAX_LISTED = 8;
/** Before that a rate says more about the start than about the fleet. */
const SETTLING_MS = 1000;

/** A fleet at one moment. Keys and messages are as a manifest or a worker chose them. */
export interface FleetView {
  readonly fleet: string | null;
  readonly items: number;
  /** With those of an earlier attempt at the fleet. */
  readonly done: number;
  readonly earlier: number;
  readonly succeeded: number;
  readonly cached: number;
  readonly failed: number;
  /** Of these: files from which nothing can be made. */
  readonly notPossible: number;
  /** Of those of an earlier attempt. */
  readonly failedEarlier: number;
  /** Their changes wait for a person. */
  readonly pending: number;
  readonly running: number;
  /** What other machines run, or have delivered. */
  readonly elsewhere: number;
  /** Those that run some, with their number of items; those with most first. */
  readonly machines: readonly { readonly name: string; readonly running: number }[];
  /** Failed once, and wait to be tried again. */
  readonly waiting: number;
  readonly elapsedMs: number;
  /** Items per second. */
  readonly recentRate: number;
  readonly overallRate: number;
  /** Null if it is not known yet, or if nothing is left. */
  readonly leftMs: number | null;
  /** Why nothing more is begun; null where more is. */
  readonly draining: string | null;
  /** What has been running longest comes first. */
  readonly slowest: readonly { readonly key: string; readonly ms: number }[];
  /** The latest first. */
  readonly failures: readonly Pick<ItemResult, "key" | "status" | "error">[];
}

/** Watches the events of one fleet, at little cost for each, and knows its status at any moment. */
export class FleetWitness {
  readonly #now: () => number;
  readonly #startedAt: number;
  readonly #rate: RecentRate;
  /** In the order in which they were started; as many as run at once. */
  readonly #running = new Map<number, { readonly key: string; readonly since: number }>();
  readonly #waiting = new Set<number>();
  readonly #failures: Pick<ItemResult, "key" | "status" | "error">[] = [];
  #fleet: string | null = null;
  #items = 0;
  #earlier = 0;
  #failedEarlier = 0;
  #succeeded = 0;
  #cached = 0;
  #failed = 0;
  #notPossible = 0;
  #pending = 0;
  #draining: string | null = null;
  #elsewhere = 0;
  #machines: FleetView["machines"] = [];

  /** `now`: milliseconds of a clock that only goes forward. */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
    this.#startedAt = now();
    this.#rate = new RecentRate(this.#startedAt);
  }

  see(event: FleetEvent): void {
    if (event.type === "loaded") {
      this.#fleet = event.fleet;
      this.#items = event.items;
      this.#failedEarlier = event.failed ?? 0;
      this.#earlier = event.done;
    } else if (event.type === "started") {
      this.#waiting.delete(event.index);
      // It was counted elsewhere, and its result comes at once.
      if (event.machine !== undefined) return;
      // An attempt whose end was not seen does not keep its place.
      this.#running.delete(event.index);
      this.#running.set(event.index, { key: event.key, since: this.#now() });
    } else if (event.type === "settled") this.#settle(event.result, event.retryInMs !== null);
    else if (event.type === "draining") this.#draining = event.why;
    else if (event.type === "elsewhere") this.#elsewhere = event.running;
    else if (event.type === "machines") this.#machines = event.machines;
  }

  /** `listed`: how many of the slowest and of the failures. */
  view(listed: number = MAX_LISTED): FleetView {
    const now = this.#now();
    const elapsedMs = now - this.#startedAt;
    const settled = this.#settled;
    const done = this.#earlier + settled;
    const recentRate = this.#rate.perSecond(now);
    const overallRate = elapsedMs <= 0 ? 0 : (settled * 1000) / elapsedMs;
    const rate = recentRate > 0 ? recentRate : overallRate;
    const left = this.#items - done;
    return {
      fleet: this.#fleet,
      items: this.#items,
      done,
      earlier: this.#earlier,
      succeeded: this.#succeeded,
      cached: this.#cached,
      failed: this.#failed,
      notPossible: this.#notPossible,
      failedEarlier: this.#failedEarlier,
      pending: this.#pending,
      running: this.#running.size,
      elsewhere: this.#elsewhere,
      machines: this.#elsewhere === 0 ? [] : this.#machines,
      waiting: this.#waiting.size,
      elapsedMs,
      recentRate,
      overallRate,
      leftMs: left <= 0 || rate <= 0 || elapsedMs < SETTLING_MS ? null : (left * 1000) / rate,
      draining: this.#draining,
      slowest: this.#slowest(Math.min(listed, MAX_LISTED), now),
      failures: this.#failures.slice(-Math.min(listed, MAX_LISTED)).toReversed(),
    };
  }

  get #settled(): number {
    return this.#succeeded + this.#cached + this.#failed + this.#pending;
  }

  #settle({ index, key, status, error, machine }: ItemResult, again: boolean): void {
    this.#running.delete(index);
    if (machine !== undefined && this.#elsewhere > 0) this.#elsewhere -= 1;
    if (again) {
      this.#waiting.add(index);
      return;
    }
    this.#waiting.delete(index);
    this.#rate.add(this.#now());
    if (status === "cached") this.#cached += 1;
    else if (isSuccess(status)) this.#succeeded += 1;
    else if (isPendingStatus(status)) this.#pending += 1;
    else {
      this.#failed += 1;
      if (status === "not_possible") this.#notPossible += 1;
      this.#failures.push({ key, status, error });
      if (this.#failures.length > MAX_LISTED) this.#failures.shift();
    }
  }

  #slowest(most: number, now: number): FleetView["slowest"] {
    const slowest: { key: string; ms: number }[] = [];
    for (const { key, since } of this.#running.values()) {
      if (slowest.length >= most) break;
      slowest.push({ key, ms: now - since });
    }
    return slowest;
  }
}

const SLOT_MS = 500;
const SLOTS = 20;

/** How many things happened per second in about the last ten. */
export class RecentRate {
  readonly #startedAt: number;
  readonly #slots = Array.from({ length: SLOTS }, () => ({ number: -1, count: 0 }));

  /** Times are milliseconds of a clock that only goes forward. */
  constructor(startedAt: number) {
    this.#startedAt = startedAt;
  }

  add(now: number): void {
    const number = Math.floor(now / SLOT_MS);
    const slot = this.#slots[number % SLOTS];
    if (slot === undefined) return;
    if (slot.number !== number) Object.assign(slot, { number, count: 0 });
    slot.count += 1;
  }

  /** The current slot counts for the part of it that has passed; the first moment counts as a whole one. */
  perSecond(now: number): number {
    const number = Math.floor(now / SLOT_MS);
    const recent = this.#slots.filter((slot) => slot.number > number - SLOTS && slot.number <= number);
    const count = recent.reduce((sum, slot) => sum + slot.count, 0);
    const coveredMs = now - Math.max(this.#startedAt, (number - SLOTS + 1) * SLOT_MS);
    return (count * 1000) / Math.max(SLOT_MS, coveredMs);
  }
}
