import { setTimeout as pause } from "node:timers/promises";
import PQueue from "p-queue";
import { EngineTrouble } from "../isolation/port/driver.ts";
import { bugText } from "../platform/bug-text.ts";
import { isHostTrouble } from "../platform/host-trouble.ts";
import { newRunId } from "../run/model/job.ts";
import { brokenResult, type RunResult } from "../run/model/result.ts";
import type { FleetCache } from "./cache/fleet-cache.ts";
import { Channel } from "./channel.ts";
import type { FleetSummary, OnFleetEvent } from "./events.ts";
import type { ItemExecutor } from "./executor.ts";
import { type FleetJob, itemJob } from "./item-job.ts";
import { itemResult, unrunResult } from "./item-result.ts";
import type { FleetState } from "./model/fleet-record.ts";
import { type FleetSpec, type ItemResult, isFailure, REVIEWED } from "./model/item.ts";
import { type Claim, type ClaimedItem, type FleetQueue, LONGEST_DELAY_MS, type Settlement } from "./model/queue.ts";
import type { FleetStore } from "./model/store.ts";
import { retryInMs } from "./retry.ts";
import type { RunTroubles } from "./run-troubles.ts";
import { Semaphore } from "./semaphore.ts";
import type { MachineShare } from "./share.ts";

export interface FleetParts {
  readonly id: string;
  readonly spec: FleetSpec;
  readonly job: FleetJob;
  readonly store: FleetStore;
  /** Of the same fleet. */
  readonly queue: FleetQueue;
  /** Null: no earlier result is used, and no result counts for another fleet. */
  readonly cache: FleetCache | null;
  readonly executor: ItemExecutor;
  readonly troubles: RunTroubles;
  readonly share: Pick<MachineShare, "concurrency" | "look">;
  readonly onEvent: OnFleetEvent;
  /** Stops everything immediately. Items that were running run again on resume. */
  readonly stop: AbortSignal;
}

/** Results that wait for the consumer; if there are more, no further item settles. */
const MAX_UNTAKEN = 1000;
/** The longest pause if no item runs and none is due. */
const IDLE_MS = 1000;
/** How often the number of other running fleets is checked. */
const SHARE_MS = 1000;

/** A running fleet: claims items, runs them and records their results until none is left or it is drained. */
export class RunningFleet {
  readonly id: string;
  readonly #parts: FleetParts;
  readonly #semaphore: Semaphore;
  /** Items in work, including those whose cells are only prepared. */
  readonly #flight: PQueue;
  readonly #results = new Channel<ItemResult>(MAX_UNTAKEN);
  readonly #begunAt: number;
  #why: string | null = null;
  #failed = 0;
  /** Items that have ended, and whose results are being recorded. */
  #recording = 0;
  #cancelled = false;
  #hasRoom: () => void = () => {};
  /** Aborts the items that still wait for the semaphore. */
  readonly #waiting = new Set<AbortController>();

  constructor(parts: FleetParts) {
    const { running, warm } = parts.share.concurrency;
    this.id = parts.id;
    this.#parts = parts;
    this.#semaphore = new Semaphore(running);
    this.#flight = new PQueue({ concurrency: running + warm });
    this.#begunAt = parts.job.env.now();
  }

  /** Every final result, as it comes. */
  get results(): AsyncIterable<ItemResult> {
    return this.#results;
  }

  /** Starts no further item, also not in a prepared cell, and lets running items finish. Only the first reason is kept. */
  drain(why: string): void {
    if (this.#why !== null) return;
    this.#why = why;
    for (const ends of this.#waiting) ends.abort(new Error(why));
    this.#parts.onEvent({ type: "draining", why });
  }

  /** Runs until no item is left or the fleet is drained. Rejects for bugs, after all running items have ended. */
  async run(): Promise<FleetSummary> {
    const { stop, store } = this.#parts;
    const failures: unknown[] = [];
    this.#failed = (await this.#parts.queue.counts()).failed;
    stop.addEventListener("abort", () => this.drain("the fleet was stopped"), { once: true });
    if (stop.aborted) this.drain("the fleet was stopped");
    const sharing = setInterval(() => void this.#resize(), SHARE_MS);
    try {
      await this.#claimAll(failures);
      await this.#flight.onIdle();
    } finally {
      clearInterval(sharing);
      this.#results.close();
      await this.#parts.cache?.end();
      // Items that were requeued in the meantime are cancelled too.
      if (this.#cancelled) await this.#parts.queue.cancelQueued(this.#why ?? "the fleet was cancelled");
      if ((await store.end(this.id)) === null) await store.pause(this.id, this.#why ?? "the fleet ended early");
    }
    if (failures.length > 0) throw failures[0];
    const summary = await this.#summary();
    this.#parts.onEvent({ type: "ended", summary });
    return summary;
  }

  /** Applies to items that start later. */
  async #resize(): Promise<void> {
    const { running, warm } = await this.#parts.share.look();
    const isMore = running + warm > this.#flight.concurrency;
    this.#semaphore.concurrency = running;
    this.#flight.concurrency = running + warm;
    if (isMore) this.#hasRoom();
  }

  async #claimAll(failures: unknown[]): Promise<void> {
    while (this.#why === null) {
      const room = this.#flight.concurrency - this.#flight.pending - this.#flight.size + this.#recording;
      if (room <= 0) {
        await this.#settledOne();
        continue;
      }
      const claim = await this.#parts.queue.claim(room, () => ({ run: newRunId(), cell: null }));
      for (const item of claim.items) {
        void this.#flight
          .add(() => this.#item(item))
          .catch((error: unknown) => {
            failures.push(error);
            this.drain("internal error in Corral");
          });
      }
      if (claim.items.length > 0) continue;
      this.#cancelled = claim.fleet === "cancelled";
      if (claim.fleet !== "running") return this.drain(WHY_NOT_RUNNING[claim.fleet]);
      if (this.#flight.pending + this.#flight.size > 0) await this.#settledOne(claim.nextAtMs);
      else if (claim.nextAtMs === null) return;
      else {
        const ms = Math.min(Math.max(claim.nextAtMs - Date.now(), 1), IDLE_MS);
        await pause(ms, undefined, { signal: this.#parts.stop }).catch(() => {});
      }
    }
  }

  /** Waits until an item ends, another is due, or there is room for more. */
  async #settledOne(dueAtMs: number | null = null): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#flight.addEventListener("next", () => resolve(), { once: true });
    this.#hasRoom = resolve;
    const timer =
      dueAtMs === null ? undefined : setTimeout(resolve, Math.min(Math.max(dueAtMs - Date.now(), 1), LONGEST_DELAY_MS));
    await promise;
    clearTimeout(timer);
  }

  /** One attempt at one item. */
  async #item(claimed: ClaimedItem): Promise<void> {
    const { job: fleet, stop, onEvent, executor, troubles, store } = this.#parts;
    const { request, attempt, run } = claimed;
    const ends = new AbortController();
    const onStop = (): void => ends.abort(stop.reason);
    stop.addEventListener("abort", onStop);
    if (stop.aborted) onStop();
    this.#waiting.add(ends);
    if (this.#why !== null) ends.abort(new Error(this.#why));
    let endTurn: (() => void) | null = null;
    let startedAt: Date | null = null;
    const turn = async (): Promise<void> => {
      endTurn = await this.#semaphore.acquire(ends.signal);
      this.#waiting.delete(ends);
      startedAt = new Date();
      onEvent({ type: "started", index: request.index, key: request.key, attempt, at: fleet.env.now() });
    };
    try {
      if (request.refusal !== undefined) {
        const error = { code: "ITEM_REFUSED", message: request.refusal };
        return await this.#settle(claimed, { ...unrunResult(claimed, "refused"), error }, UNRUN);
      }
      const job = itemJob(fleet, request, { run, fleet: this.id, signal: ends.signal, turn });
      const entry = (await this.#parts.cache?.entryOf(job)) ?? null;
      const earlier = entry === null ? null : await store.succeededBefore(entry.key);
      if (earlier !== null) {
        const cached = { ...unrunResult(claimed, "cached"), exitCode: 0, output: earlier.result.output };
        return await this.#settle(claimed, cached, UNRUN);
      }
      const ran = await executor.run(job).catch((error: unknown) => this.#brokenRun(claimed, error));
      const result = itemResult(claimed, ran, startedAt, troubles.take(run));
      // A withdrawn attempt does not count: the item runs when the fleet is resumed.
      if (result.status === "cancelled" && ends.signal.aborted)
        return void (await this.#parts.queue.requeue(request.index, attempt, 0));
      const cacheKey = result.status === "succeeded" ? await entry?.keyAfter() : null;
      await this.#settle(claimed, result, { cacheKey: cacheKey ?? null, streams: ran });
    } finally {
      stop.removeEventListener("abort", onStop);
      this.#waiting.delete(ends);
      (endTurn as (() => void) | null)?.();
    }
  }

  /** The result of a run that a bug ended. It says nothing of the other items: they continue, and this one never runs again. */
  #brokenRun({ request, run }: ClaimedItem, error: unknown): RunResult {
    if (error instanceof EngineTrouble || isHostTrouble(error)) throw error;
    const bug = `internal error: ${bugText(error)}`;
    this.#parts.troubles.add(run, bug);
    this.#parts.onEvent({ type: "trouble", detail: `item ${request.key} is lost, other items continue: ${bug}` });
    return brokenResult({ run, worker: this.#parts.spec.worker });
  }

  async #settle(
    { request, attempt, earlier }: ClaimedItem,
    result: ItemResult,
    more: Omit<Settlement, "result">,
  ): Promise<void> {
    const { onEvent, spec, job } = this.#parts;
    const at = job.env.now();
    if (result.error?.code === "HOST_TROUBLE") {
      // The machine has no more of something that all items need: the next item would fail as well.
      await this.#parts.queue.requeue(request.index, attempt, 0);
      return this.drain(result.error.message);
    }
    const isBroken = result.error?.code === "INTERNAL";
    const retry = isBroken ? null : retryInMs(result.status, attempt - earlier, spec);
    if (retry !== null) {
      await this.#parts.queue.requeue(request.index, attempt, Date.now() + retry);
      onEvent({ type: "settled", result, retryInMs: retry, at });
      return;
    }
    if (result.status === "lost" && !isBroken && !(await this.#engineAnswers())) {
      // The failures say nothing about the item: it runs when the fleet is resumed.
      await this.#parts.queue.requeue(request.index, attempt, 0);
      this.drain("the container engine does not answer");
      return;
    }
    const failed = isFailure(result.status) ? 1 : 0;
    this.#failed += failed;
    const taken = await this.#recorded(() => this.#parts.queue.settle(request.index, attempt, { result, ...more }));
    if (!taken.ok) {
      this.#failed -= failed;
      return onEvent({ type: "trouble", detail: taken.reason });
    }
    onEvent({ type: "settled", result, retryInMs: null, at });
    if (this.#hasFailed) this.drain(`more than ${spec.maxFailures} items failed`);
    await this.#results.put(result);
  }

  get #hasFailed(): boolean {
    const { maxFailures } = this.#parts.spec;
    return maxFailures !== null && this.#failed > maxFailures;
  }

  /**
   * The next item is claimed in the transaction that records this one: it begins when that is committed, as before, and each
   * item costs one transaction in place of two. No item is claimed after the last failure that the fleet may have.
   */
  async #recorded<T>(record: () => Promise<T>): Promise<T> {
    const written = record();
    if (this.#hasFailed || this.#why !== null) return await written;
    this.#recording += 1;
    this.#hasRoom();
    try {
      return await written;
    } finally {
      this.#recording -= 1;
    }
  }

  async #engineAnswers(): Promise<boolean> {
    try {
      await this.#parts.job.env.driver.list();
      return true;
    } catch (error) {
      if (!(error instanceof EngineTrouble)) throw error;
      return false;
    }
  }

  async #summary(): Promise<FleetSummary> {
    const { store, job } = this.#parts;
    const record = await store.find(this.id);
    const lines = await store.summary(this.id);
    const byStatus: Record<string, number> = {};
    const byReason: Record<string, number> = {};
    for (const { status, code, count } of lines) {
      byStatus[status] = (byStatus[status] ?? 0) + count;
      if (code !== null && !NO_REASONS.has(status)) byReason[code] = (byReason[code] ?? 0) + count;
    }
    const stored = record?.state;
    const state = hasEnded(stored) ? stored : "paused";
    return {
      fleet: this.id,
      state,
      why: state === "done" || state === "pending" ? null : (record?.why ?? this.#why),
      items: record?.counts.total ?? 0,
      done: record?.counts.done ?? 0,
      byStatus,
      byReason,
      failures: await store.failureGroups(this.id),
      durationMs: Math.round(job.env.now() - this.#begunAt),
    };
  }
}

/** Their errors are no failures of the fleet. */
const NO_REASONS: ReadonlySet<string> = new Set(["succeeded", "cached", ...REVIEWED]);

function hasEnded(state: FleetState | undefined): state is "done" | "pending" | "cancelled" {
  return state === "done" || state === "pending" || state === "cancelled";
}
/** Nothing ran. */
const UNRUN = { cacheKey: null, streams: null } as const;

const WHY_NOT_RUNNING: Readonly<Record<Exclude<Claim["fleet"], "running">, string>> = {
  paused: "the fleet is paused",
  cancelled: "the fleet was cancelled",
  done: "the fleet is done",
  taken: "another process took over the fleet",
};
