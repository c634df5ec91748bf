import { setTimeout as pause } from "node:timers/promises";
import PQueue from "p-queue";
import { EngineTrouble } from "../isolation/port/driver.ts";
import { bugText } from "../platform/bug-text.ts";
import { isHostTrouble } from "../platform/host-trouble.ts";
import { type Job, newRunId } from "../run/model/job.ts";
import { brokenResult, type RunResult } from "../run/model/result.ts";
import { finishBegun, ItemEffects } from "./begun-effects.ts";
import type { FleetCache } from "./cache/fleet-cache.ts";
import { Channel } from "./channel.ts";
import { deliveredResult } from "./elsewhere/delivered-result.ts";
import { ItemsElsewhere } from "./elsewhere/items-elsewhere.ts";
import type { FleetSummary, OnFleetEvent } from "./events.ts";
import type { ItemExecutor } from "./executor.ts";
import { type FleetJob, itemJob } from "./item-job.ts";
import { itemResult, unrunResult } from "./item-result.ts";
import type { FleetState } from "./model/fleet-record.ts";
import { type FleetSpec, type ItemResult, isFailure, REVIEWED } from "./model/item.ts";
import { type Claim, type ClaimedItem, type FleetQueue, LONGEST_DELAY_MS, type Settlement } from "./model/queue.ts";
import type { ApplyingItem, FleetStore } from "./model/store.ts";
import type { Delivered, WorkStore } from "./model/work.ts";
import { retryInMs } from "./retry.ts";
import type { RunTroubles } from "./run-troubles.ts";
import { Semaphore } from "./semaphore.ts";
import type { MachineShare } from "./share.ts";
import type { SettleChanges, SettledElsewhere } from "./transport.ts";

export interface FleetParts {
  readonly id: string;
  readonly spec: FleetSpec;
  readonly job: FleetJob;
  readonly store: FleetStore;
  /** Of the same fleet. */
  readonly queue: FleetQueue;
  /** Null: no earlier result is used, and no result counts for another fleet. */
  readonly cache: FleetCache | null;
  /** Items whose effects an earlier process had begun: they are finished first. */
  readonly applying?: readonly ApplyingItem[];
  readonly executor: ItemExecutor;
  readonly troubles: RunTroubles;
  readonly share: Pick<MachineShare, "concurrency" | "look">;
  /** Null: this process alone runs its items. */
  readonly elsewhere: Elsewhere | null;
  readonly onEvent: OnFleetEvent;
  /** Stops everything immediately. Items that were running run again on resume. */
  readonly stop: AbortSignal;
}

/** What a fleet has whose items machines run too. */
export interface Elsewhere {
  readonly work: WorkStore;
  readonly settleChanges: SettleChanges;
  readonly pause: (ms: number) => Promise<unknown>;
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
  #elsewhere: ItemsElsewhere | null = null;
  #runningElsewhere = 0;
  /** Aborts the items that still wait for the semaphore. */
  readonly #waiting = new Set<AbortController>();

  constructor(parts: FleetParts) {
    const { running, warm } = parts.share.concurrency;
    this.id = parts.id;
    this.#parts = parts;
    // One that runs nothing itself claims nothing.
    this.#semaphore = new Semaphore(Math.max(1, running));
    this.#flight = new PQueue({ concurrency: Math.max(1, running + warm) });
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
    const failed = (error: Error): void => this.#parts.onEvent({ type: "trouble", detail: error.message });
    this.#parts.elsewhere?.work.drain(this.id).catch(failed);
    this.#hasRoom();
  }

  /** Runs until no item is left or the fleet is drained. Rejects for bugs, after all running items have ended. */
  async run(): Promise<FleetSummary> {
    const { stop, store } = this.#parts;
    const failures: unknown[] = [];
    this.#failed = (await this.#parts.queue.counts()).failed;
    stop.addEventListener("abort", () => this.drain("the fleet was stopped"), { once: true });
    if (stop.aborted) this.drain("the fleet was stopped");
    const sharing = setInterval(() => void this.#resize(), SHARE_MS);
    const failed = (error: unknown): void => {
      failures.push(error);
      this.drain("internal error in Corral");
    };
    this.#elsewhere = this.#watchElsewhere(failed);
    try {
      await this.#finishBegun();
      await this.#claimAll(failed);
      await this.#flight.onIdle();
      await this.#allBack();
    } finally {
      clearInterval(sharing);
      await this.#elsewhere?.end();
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
    this.#semaphore.concurrency = Math.max(1, running);
    this.#flight.concurrency = Math.max(1, running + warm);
    if (isMore) this.#hasRoom();
  }

  async #claimAll(failed: (error: unknown) => void): Promise<void> {
    const runsNone = this.#parts.spec.concurrency === 0;
    while (this.#why === null) {
      const room = runsNone ? 0 : this.#flight.concurrency - this.#inFlight + this.#recording;
      if (room <= 0 && !runsNone) {
        await this.#settledOne();
        continue;
      }
      const claim = await this.#parts.queue.claim(room, () => ({ run: newRunId(), cell: null }));
      this.#tellElsewhere(claim.elsewhere);
      for (const item of claim.items) void this.#flight.add(() => this.#item(item)).catch(failed);
      if (claim.items.length > 0) continue;
      this.#cancelled = claim.fleet === "cancelled";
      if (claim.fleet !== "running") return this.drain(WHY_NOT_RUNNING[claim.fleet]);
      const isLeft = claim.nextAtMs !== null || claim.elsewhere > 0 || (runsNone && (await this.#hasQueued()));
      if (this.#inFlight === 0 && !isLeft) return;
      // A notice of what machines did can be lost, so the queue is read again soon.
      const dueAtMs = this.#parts.elsewhere === null ? claim.nextAtMs : Date.now() + IDLE_MS;
      if (this.#inFlight > 0 || this.#parts.elsewhere !== null) await this.#settledOne(dueAtMs);
      else {
        const ms = Math.min(Math.max((claim.nextAtMs ?? 0) - Date.now(), 1), IDLE_MS);
        await pause(ms, undefined, { signal: this.#parts.stop }).catch(() => {});
      }
    }
  }

  get #inFlight(): number {
    return this.#flight.pending + this.#flight.size;
  }

  async #hasQueued(): Promise<boolean> {
    return (await this.#parts.queue.counts()).queued > 0;
  }

  #watchElsewhere(onFailure: (error: unknown) => void): ItemsElsewhere | null {
    const { elsewhere, onEvent, job } = this.#parts;
    if (elsewhere === null) return null;
    return new ItemsElsewhere({
      id: this.id,
      work: elsewhere.work,
      settle: (delivered) => this.#delivered(delivered, elsewhere.settleChanges),
      onChange: () => this.#hasRoom(),
      onTrouble: (detail) => onEvent({ type: "trouble", detail }),
      onFailure,
      now: job.env.now,
      pause: elsewhere.pause,
    });
  }

  #tellElsewhere(running: number): void {
    if (running === this.#runningElsewhere) return;
    this.#runningElsewhere = running;
    this.#parts.onEvent({ type: "elsewhere", running });
  }

  /** Waits for what machines run, until it is stopped. An item of this process that could not be finished waits for `resume`. */
  async #allBack(): Promise<void> {
    const { elsewhere, queue, stop } = this.#parts;
    while (elsewhere !== null && !stop.aborted) {
      const claim = await queue.claim(0, () => ({ run: newRunId(), cell: null }));
      this.#tellElsewhere(claim.elsewhere);
      if (claim.elsewhere === 0) return;
      await elsewhere.work.wake(IDLE_MS, stop);
    }
  }

  /** One attempt on a machine: everything in it is that machine's word. */
  async #delivered(delivered: Delivered, settleChanges: SettleChanges): Promise<void> {
    const { job, store, onEvent, stop } = this.#parts;
    const { index, key, attempt, earlier, run, machine } = delivered;
    const request = (await store.item(this.id, key))?.request;
    if (request === undefined) throw new Error(`the fleet has no item ${key}`);
    onEvent({ type: "started", index, key, attempt, at: job.env.now(), machine });
    const claimed: ClaimedItem = { request, attempt, earlier, run, cell: null };
    const checked = deliveredResult(delivered, request.fields ?? {});
    if (checked === null) {
      const message = `The machine ${machine} delivered what is no result.`;
      const lost = { ...unrunResult(claimed, "lost"), run, attempt, error: { code: "DELIVERY_REFUSED", message } };
      return await this.#settle(claimed, lost, UNRUN, async () => ({ result: lost, hasBegun: false }));
    }
    const { result, streams } = checked;
    const signal = stop;
    const more = { cacheKey: null, streams };
    await this.#settle(claimed, result, more, () =>
      settleChanges({ delivered, request, result, streams }, { fleet: this.id, job, queue: this.#parts.queue, signal }),
    );
  }

  /** Waits until an item ends, another is due, or there is room for more. */
  async #settledOne(dueAtMs: number | null = null): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const onNext = (): void => resolve();
    this.#flight.addEventListener("next", onNext, { once: true });
    this.#hasRoom = resolve;
    const timer =
      dueAtMs === null ? undefined : setTimeout(resolve, Math.min(Math.max(dueAtMs - Date.now(), 1), LONGEST_DELAY_MS));
    await promise;
    clearTimeout(timer);
    this.#flight.removeEventListener("next", onNext);
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
      const { queue } = this.#parts;
      const effects = new ItemEffects(claimed, { queue, changesets: fleet.env.changesets }, () => startedAt);
      const begin: Job["begin"] = async (foreseen) => await effects.begin(foreseen);
      const job = itemJob(fleet, request, { run, fleet: this.id, signal: ends.signal, turn, begin });
      const entry = (await this.#parts.cache?.entryOf(job)) ?? null;
      const earlier = entry === null ? null : await store.succeededBefore(entry.key);
      if (earlier !== null) {
        const cached = { ...unrunResult(claimed, "cached"), exitCode: 0, output: earlier.result.output };
        return await this.#settle(claimed, cached, UNRUN);
      }
      const ran = await executor.run(job).catch((error: unknown) => this.#brokenRun(claimed, error));
      const result = itemResult(claimed, ran, startedAt, troubles.take(run));
      if (effects.hasBegun && CUT_OFF.has(result.status)) return await this.#finish(effects, result);
      if (effects.isUnknown && result.error?.code !== "INTERNAL")
        return this.drain("it could not be recorded that an item begins to change files");
      // A withdrawn attempt does not count: the item runs when the fleet is resumed.
      if (result.status === "cancelled" && ends.signal.aborted) return await this.#giveUp(claimed);
      const cacheKey = result.status === "succeeded" ? await entry?.keyAfter() : null;
      const more = { cacheKey: cacheKey ?? null, streams: ran };
      if (effects.hasBegun) await this.#record(claimed, this.#unretried(claimed, result), more, true);
      else await this.#settle(claimed, result, more);
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

  /** The run was cut off after it had begun to change files: it does not run again. */
  async #finish(effects: ItemEffects, { error }: ItemResult): Promise<void> {
    if (error?.code === "HOST_TROUBLE") this.drain(error.message);
    const { worker } = this.#parts.spec;
    await this.#unlessTrouble(UNFINISHED, () => effects.finish(worker, (result) => this.#tell(result)));
  }

  /** Each result is reported as soon as it is recorded: after a crash in between, no process reports it. */
  async #finishBegun(): Promise<void> {
    const { applying = [], spec, queue, job } = this.#parts;
    const ports = { queue, changesets: job.env.changesets };
    for (const item of applying)
      await this.#unlessTrouble(UNFINISHED, () =>
        finishBegun(item, spec.worker, ports, (result) => this.#tell(result)),
      );
  }

  async #unlessTrouble(why: string, finish: () => Promise<void>): Promise<void> {
    const { onEvent } = this.#parts;
    try {
      await finish();
    } catch (trouble) {
      if (!(trouble instanceof EngineTrouble) && !isHostTrouble(trouble)) throw trouble;
      // The item stays as it is until the fleet is resumed.
      onEvent({ type: "trouble", detail: trouble.message });
      this.drain(why);
    }
  }

  async #settle(
    claimed: ClaimedItem,
    result: ItemResult,
    more: Omit<Settlement, "result">,
    /** For an attempt on a machine: applies its changes, after which it never runs again. Null: another attempt counts. */
    applied: (() => Promise<SettledElsewhere | null>) | null = null,
  ): Promise<void> {
    const { onEvent, spec, job } = this.#parts;
    const { request, attempt, earlier } = claimed;
    const at = job.env.now();
    if (result.error?.code === "HOST_TROUBLE" && applied === null) {
      // The machine has no more of something that all items need: the next item would fail as well.
      await this.#giveUp(claimed);
      return this.drain(result.error.message);
    }
    const isBroken = result.error?.code === "INTERNAL";
    const retry = isBroken ? null : retryInMs(result.status, attempt - earlier, spec);
    if (retry !== null) {
      await this.#giveUp(claimed, Date.now() + retry);
      onEvent({ type: "settled", result: withoutKept(result), retryInMs: retry, at });
      return;
    }
    if (result.status === "lost" && applied === null && !isBroken && !(await this.#engineAnswers())) {
      // The failures say nothing about the item: it runs when the fleet is resumed.
      await this.#giveUp(claimed);
      this.drain("the container engine does not answer");
      return;
    }
    if (applied === null) return await this.#record(claimed, result, more, false);
    const settled = await applied();
    // It was stopped before it had decided: the delivery waits for the next owner of the fleet.
    if (settled?.result.status === "cancelled" && !settled.hasBegun && this.#parts.stop.aborted)
      return await job.env.changesets.drop(claimed.run, "its coordinator was stopped");
    if (settled !== null) return await this.#record(claimed, settled.result, more, settled.hasBegun);
    onEvent({ type: "trouble", detail: `attempt ${attempt} of item ${request.key} no longer counts` });
  }

  /** What the attempt kept is removed before the item can run again: applied by a person later, it would be there twice. */
  async #giveUp({ request, attempt, run }: ClaimedItem, notBeforeMs = 0): Promise<void> {
    const { queue, job } = this.#parts;
    await this.#unlessTrouble("what an attempt kept cannot be removed now", async () => {
      await job.env.changesets.drop(run, "its attempt does not count, and the item runs again");
      await queue.requeue(request.index, attempt, notBeforeMs);
    });
  }

  /** The result of an attempt that had begun to change files. It says so if it would have been retried otherwise. */
  #unretried({ attempt, earlier }: ClaimedItem, result: ItemResult): ItemResult {
    const { error, status } = result;
    if (error === null || retryInMs(status, attempt - earlier, this.#parts.spec) === null) return result;
    return {
      ...result,
      error: { ...error, message: `${error.message} It had begun to change files, so it is not retried.` },
    };
  }

  /** `hasBegun`: it has changed files. */
  async #record(
    { request, attempt, run }: ClaimedItem,
    result: ItemResult,
    more: Omit<Settlement, "result">,
    hasBegun: boolean,
  ): Promise<void> {
    const { onEvent, job } = this.#parts;
    const failed = isFailure(result.status) ? 1 : 0;
    this.#failed += failed;
    const taken = await this.#recorded(() => this.#parts.queue.settle(request.index, attempt, { result, ...more }));
    if (!taken.ok) {
      this.#failed -= failed;
      // What has begun is finished by another process, with what waits of it.
      if (!hasBegun) await job.env.changesets.withdraw([run], taken.reason);
      return onEvent({ type: "trouble", detail: taken.reason });
    }
    this.#failed -= failed;
    await this.#tell(result);
  }

  /** A result that is recorded. */
  async #tell(result: ItemResult): Promise<void> {
    const { onEvent, spec, job } = this.#parts;
    if (isFailure(result.status)) this.#failed += 1;
    onEvent({ type: "settled", result, retryInMs: null, at: job.env.now() });
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

/** The result of an attempt that was given up: none of its changes waits. */
function withoutKept(result: ItemResult): ItemResult {
  return result.changeset === undefined ? result : { ...result, changeset: { ...result.changeset, id: null } };
}

/** The run itself was not ended by its worker. */
const CUT_OFF: ReadonlySet<string> = new Set(["cancelled", "lost"]);

const UNFINISHED = "changes that were begun cannot be finished now";

/** Nothing ran. */
const UNRUN = { cacheKey: null, streams: null } as const;

const WHY_NOT_RUNNING: Readonly<Record<Exclude<Claim["fleet"], "running">, string>> = {
  paused: "the fleet is paused",
  cancelled: "the fleet was cancelled",
  done: "the fleet is done",
  taken: "another process took over the fleet",
};
