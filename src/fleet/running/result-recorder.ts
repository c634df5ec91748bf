import { EngineTrouble } from "../../isolation/port/driver.ts";
import { DiskFull, isHostTrouble } from "../../platform/errno.ts";
import { UnfinishedChanges } from "../../run/model/result.ts";
import { type FleetSpec, type ItemResult, isFailure } from "../model/item.ts";
import { type ClaimedItem, LONGEST_DELAY_MS, type Settlement, type Urgency } from "../model/queue.ts";
import type { FleetLoop, FleetParts } from "./fleet-parts.ts";

/** An ordered, bounded queue from many producers to one consumer. A producer waits while it is full. */
export class Channel<Value> {
  readonly #capacity: number;
  readonly #values: Value[] = [];
  #closed = false;
  #taken = Promise.withResolvers<void>();
  #put = Promise.withResolvers<void>();

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Drops the value after {@link close}. */
  async put(value: Value): Promise<void> {
    while (this.#values.length >= this.#capacity && !this.#closed) await this.#taken.promise;
    if (this.#closed) return;
    this.#values.push(value);
    this.#put.resolve();
  }

  /** The consumer still receives the values that are already queued. */
  close(): void {
    this.#closed = true;
    this.#put.resolve();
    this.#taken.resolve();
  }

  /** May be used once: a consumer that leaves closes it, and producers no longer wait. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Value> {
    try {
      for (;;) {
        const value = this.#values.shift();
        if (value !== undefined) {
          this.#taken.resolve();
          this.#taken = Promise.withResolvers();
          yield value;
        } else if (this.#closed) return;
        else {
          this.#put = Promise.withResolvers();
          await this.#put.promise;
        }
      }
    } finally {
      this.close();
    }
  }
}

/** Attempts if the Engine failed, which says nothing about the item. */
const MAX_LOST_ATTEMPTS = 6;
const FIRST_BACKOFF_MS = 500;

/** Statuses that are never retried: success, also an earlier one, and decisions of the project or of a person. */
const FINAL = new Set(["succeeded", "cached", "refused", "denied", "cancelled", "pending"]);

/** The delay before the next attempt in milliseconds; null if this result counts. `attempt` starts at 1. */
export function retryInMs(status: string, attempt: number, { retries }: Pick<FleetSpec, "retries">): number | null {
  if (FINAL.has(status)) return null;
  const attempts = status === "lost" ? Math.max(MAX_LOST_ATTEMPTS, 1 + retries) : 1 + retries;
  if (attempt >= attempts) return null;
  return Math.min(FIRST_BACKOFF_MS * 2 ** (attempt - 1), LONGEST_DELAY_MS);
}

/** Results that wait for the consumer; if there are more, no further item settles. */
const MAX_UNTAKEN = 1000;
/** Results that are recorded while further items begin. */
const MAX_RECORDING = 64;

/** Nothing ran. */
export const UNRUN = { cacheKey: null, streams: null } as const;

/** Ends attempts: the result of one is recorded and reported, or it is given up and its item runs again. */
export class ResultRecorder {
  readonly #fleet: FleetParts;
  readonly #loop: FleetLoop;
  readonly #results = new Channel<ItemResult>(MAX_UNTAKEN);
  #failed = 0;
  /** Failures that are being recorded: another attempt may count in place of theirs. */
  #failing = 0;
  #recording = 0;
  #deciding = 0;

  /** Called when {@link recording} or {@link isHeld} has changed. */
  onRecording: () => void = () => {};

  constructor(fleet: FleetParts, loop: FleetLoop) {
    this.#fleet = fleet;
    this.#loop = loop;
  }

  /** Every final result, as it comes. */
  get results(): AsyncIterable<ItemResult> {
    return this.#results;
  }

  /** Items that have ended, and whose results are being recorded: so many further items may begin. */
  get recording(): number {
    return Math.min(this.#recording, MAX_RECORDING);
  }

  /** A failure beyond those that the fleet may have is being recorded: none begins until it is known whether that one counts. */
  get isHeld(): boolean {
    return this.#deciding > 0;
  }

  /** Counts the failures of earlier processes. */
  async open(): Promise<void> {
    this.#failed = (await this.#fleet.queue.counts()).failed;
  }

  close(): void {
    this.#results.close();
  }

  /** Whether the attempt failed in a way that is retried: then its item is queued again. */
  async retried(claimed: ClaimedItem, result: ItemResult): Promise<boolean> {
    const retry = this.#retryInMs(claimed, result);
    if (retry === null) return false;
    await this.#givenUp(claimed, Date.now() + retry, "failed");
    const at = this.#fleet.job.env.now();
    this.#fleet.onEvent({ type: "settled", result: withoutKept(result), retryInMs: retry, at });
    return true;
  }

  /** An attempt that does not count. */
  async giveUp(claimed: ClaimedItem): Promise<void> {
    await this.#givenUp(claimed, 0, "withdrawn");
  }

  /** An item that was claimed and has not begun: others may claim it. */
  async giveBack({ request, attempt }: ClaimedItem): Promise<void> {
    await this.unlessTrouble("an item that has not begun cannot be given back now", async () => {
      await this.#fleet.queue.requeue(request.index, attempt, 0, "withdrawn");
    });
  }

  /** What the attempt kept is removed before the item can run again: applied by a person later, it would be there twice. */
  async #givenUp(
    { request, attempt, run }: ClaimedItem,
    notBeforeMs: number,
    why: "failed" | "withdrawn",
  ): Promise<void> {
    const { queue, job } = this.#fleet;
    await this.unlessTrouble("what an attempt kept cannot be removed now", async () => {
      await job.env.changesets.drop(run, "its attempt does not count, and the item runs again");
      await queue.requeue(request.index, attempt, notBeforeMs, why);
    });
  }

  /** The final result. `hasBegun`: the attempt has changed files. `urgency`: `soon` if no item waits until it is recorded. */
  async record(
    claimed: ClaimedItem,
    result: ItemResult,
    more: Omit<Settlement, "result">,
    { hasBegun, urgency }: { readonly hasBegun: boolean; readonly urgency?: Urgency },
  ): Promise<void> {
    const { onEvent, job, queue } = this.#fleet;
    const { request, attempt, run } = claimed;
    const failed = isFailure(result.status) ? 1 : 0;
    this.#failing += failed;
    using _ = this.#held(failed > 0 && this.#hasFailed);
    const taken = await this.#recorded(() => queue.settle(request.index, attempt, { result, ...more }, urgency));
    this.#failing -= failed;
    if (taken.ok) return await this.tell(result);
    // What has begun is finished by another process, with what waits of it, and what that one inherits is that one's.
    if (!hasBegun && !(taken.code === "taken" && taken.isInherited))
      await job.env.changesets.withdraw([run], taken.reason);
    onEvent({ type: "trouble", detail: taken.reason });
  }

  #held(holds: boolean): Disposable {
    const hold = (more: number): void => {
      if (!holds) return;
      this.#deciding += more;
      this.onRecording();
    };
    hold(1);
    return { [Symbol.dispose]: () => hold(-1) };
  }

  /** The final result of an attempt that a bug ended before it had changed files. No result names what it kept, so that is removed before. */
  async recordBroken(claimed: ClaimedItem, result: ItemResult): Promise<void> {
    await this.#fleet.job.env.changesets.drop(claimed.run, "an internal error ended its attempt");
    await this.record(claimed, result, UNRUN, { hasBegun: false });
  }

  /** Reports a result that is recorded. */
  async tell(result: ItemResult): Promise<void> {
    const { onEvent, spec, job } = this.#fleet;
    if (isFailure(result.status)) this.#failed += 1;
    onEvent({ type: "settled", result, retryInMs: null, at: job.env.now() });
    if (spec.maxFailures !== null && this.#failed > spec.maxFailures)
      this.#loop.drain(`more than ${spec.maxFailures} items failed`);
    await this.#results.put(result);
  }

  /** The result of an attempt that had begun to change files. It says so if it would have been retried otherwise. */
  unretried(claimed: ClaimedItem, result: ItemResult): ItemResult {
    const { error } = result;
    if (error === null || this.#retryInMs(claimed, result) === null) return result;
    const message = `${error.message} It had begun to change files, so it is not retried.`;
    return { ...result, error: { ...error, message } };
  }

  /** Drains the fleet if the Engine or this machine fails, or nothing can be recorded: the item stays as it is until the fleet is resumed. */
  async unlessTrouble(why: string, act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (trouble) {
      if (!isRunTrouble(trouble)) throw trouble;
      this.#fleet.onEvent({ type: "trouble", detail: trouble.message });
      this.#loop.drain(trouble instanceof DiskFull ? `${why}: ${trouble.message}` : why);
    }
  }

  #retryInMs({ attempt, earlier }: ClaimedItem, { status, error }: ItemResult): number | null {
    return error?.code === "INTERNAL" ? null : retryInMs(status, attempt - earlier, this.#fleet.spec);
  }

  get #hasFailed(): boolean {
    const { maxFailures } = this.#fleet.spec;
    return maxFailures !== null && this.#failed + this.#failing > maxFailures;
  }

  /**
   * The next item begins while this one is recorded. If it has to be claimed first, that is in the same transaction, so each item costs
   * one in place of two. None begins after the last failure that the fleet may have.
   */
  async #recorded<T>(record: () => Promise<T>): Promise<T> {
    const written = record();
    if (this.#hasFailed || this.#loop.draining.aborted) return await written;
    this.#recording += 1;
    this.onRecording();
    try {
      return await written;
    } finally {
      this.#recording -= 1;
      this.onRecording();
    }
  }
}

/** The Engine or this machine fails, which says nothing about the item. */
export function isRunTrouble(error: unknown): error is Error {
  return error instanceof EngineTrouble || error instanceof UnfinishedChanges || isHostTrouble(error);
}

/** The result of an attempt that was given up: none of its changes waits. */
function withoutKept(result: ItemResult): ItemResult {
  return result.changeset === undefined ? result : { ...result, changeset: { ...result.changeset, id: null } };
}
