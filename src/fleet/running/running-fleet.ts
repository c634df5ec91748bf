import { inParallel } from "../../blobs/blob.ts";
import { isHostTrouble } from "../../platform/errno.ts";
import { newRunId } from "../../run/model/job.ts";
import { itemJob } from "../items/item-job.ts";
import { type ItemRequest, type ItemResult, REVIEWED } from "../model/item.ts";
import { type Claim, LONGEST_DELAY_MS, QueueError } from "../model/queue.ts";
import type { FleetState, FleetStore } from "../model/store.ts";
import { Deliveries } from "./deliveries.ts";
import type { FleetSummary } from "./events.ts";
import type { Elsewhere, FleetLoop, FleetParts, OwnedParts } from "./fleet-parts.ts";
import { cachedResult } from "./item-result.ts";
import { ItemsHere } from "./items-here.ts";
import { OwnedQueue } from "./owned-queue.ts";
import { ResultRecorder } from "./result-recorder.ts";

/** Items that are looked up together. */
const PAGE = 200;
/** If so many items in a row have no earlier result, the others are not looked up: most fleets are new. */
const MAX_UNKNOWN = 1000;

/**
 * Machines look up no earlier results: they know nothing of other fleets. So the fleet's owner looks up the items that wait, in their order,
 * and those that succeeded before end without an attempt. After the first page, machines run items beside it.
 */
class EarlierResults {
  readonly #fleet: OwnedParts;
  readonly #loop: FleetLoop;
  readonly #recorder: ResultRecorder;
  #after = -1;
  #unknown = 0;

  constructor(fleet: OwnedParts, loop: FleetLoop, recorder: ResultRecorder) {
    this.#fleet = fleet;
    this.#loop = loop;
    this.#recorder = recorder;
  }

  async all(): Promise<void> {
    while (await this.page());
  }

  /** False: nothing is left to look up. */
  async page(): Promise<boolean> {
    const { id, elsewhere, cache } = this.#fleet;
    if (elsewhere === null || cache === null || this.#loop.draining.aborted || this.#unknown >= MAX_UNKNOWN)
      return false;
    const waiting = await elsewhere.work.waiting(id, { after: this.#after, limit: PAGE });
    this.#after = waiting.at(-1)?.index ?? this.#after;
    const found: ItemResult[] = [];
    await inParallel(waiting, async (request) => {
      const earlier = await this.#earlier(request);
      if (earlier !== null) found.push(cachedResult({ request }, earlier));
    });
    this.#unknown = found.length === 0 ? this.#unknown + waiting.length : 0;
    const ended = new Set(found.length === 0 ? [] : await elsewhere.work.settleWaiting(id, found));
    for (const result of found) if (ended.has(result.index)) await this.#recorder.tell(result);
    if (ended.size > 0) this.#loop.wake();
    return waiting.length === PAGE;
  }

  async #earlier(request: ItemRequest): Promise<ItemResult | null> {
    const { id, job, cache, stop } = this.#fleet;
    if (cache === null || request.refusal !== undefined) return null;
    const asked = { run: newRunId(), fleet: id, signal: stop, turn: async () => {} };
    const entry = await cache.entryOf(itemJob(job, request, asked));
    return entry === null ? null : await cache.earlier(entry);
  }
}

/** Their errors are no failures of the fleet. */
const NO_REASONS: ReadonlySet<string> = new Set(["succeeded", "cached", ...REVIEWED]);

/** What came of a fleet that this process no longer runs. `why`: why it was drained. */
async function fleetSummary(
  store: FleetStore,
  id: string,
  { why, durationMs }: { readonly why: string | null; readonly durationMs: number },
): Promise<FleetSummary> {
  const record = await store.find(id);
  const byStatus: Record<string, number> = {};
  const byReason: Record<string, number> = {};
  for (const { status, code, count } of await store.summary(id)) {
    byStatus[status] = (byStatus[status] ?? 0) + count;
    if (code !== null && !NO_REASONS.has(status)) byReason[code] = (byReason[code] ?? 0) + count;
  }
  const stored = record?.state;
  const state = hasEnded(stored) ? stored : "paused";
  return {
    fleet: id,
    state,
    why: state === "done" || state === "pending" ? null : (record?.why ?? why),
    items: record?.counts.total ?? 0,
    done: record?.counts.done ?? 0,
    byStatus,
    byReason,
    failures: await store.failureGroups(id),
    durationMs,
  };
}

function hasEnded(state: FleetState | undefined): state is "done" | "pending" | "cancelled" {
  return state === "done" || state === "pending" || state === "cancelled";
}

/** The longest wait if no item runs here. */
const IDLE_MS = 1000;
/** How often the number of other running fleets is checked. */
const SHARE_MS = 1000;

/** A running fleet: claims items until none is left or it is drained. They run here or on machines, and their results are recorded. */
export class RunningFleet {
  readonly id: string;
  readonly #parts: OwnedParts;
  readonly #draining = new AbortController();
  readonly #lost = new AbortController();
  readonly #recorder: ResultRecorder;
  readonly #here: ItemsHere;
  readonly #begunAt: number;
  readonly #failures: unknown[] = [];
  #isShareUnknown = false;
  /** Resolved by the first thing that happens after the loop has begun to look. */
  #changed = Promise.withResolvers<void>();

  constructor(parts: FleetParts) {
    this.id = parts.id;
    const queue = new OwnedQueue(parts.queue, parts.job.env.now, (taken) => {
      this.drain(taken.message);
      this.#lost.abort(taken);
    });
    this.#parts = { ...parts, queue, stop: AbortSignal.any([parts.stop, this.#lost.signal]) };
    this.#recorder = new ResultRecorder(this.#parts, this.#loop);
    this.#here = new ItemsHere(this.#parts, this.#loop, this.#recorder);
    this.#begunAt = parts.job.env.now();
  }

  /** Every final result, as it comes. */
  get results(): AsyncIterable<ItemResult> {
    return this.#recorder.results;
  }

  /** Starts no further item, also not in a prepared cell, and lets running items finish. Only the first reason is kept. */
  drain(why: string): void {
    if (this.#draining.signal.aborted) return;
    this.#draining.abort(new Error(why));
    this.#parts.onEvent({ type: "draining", why });
    const failed = (error: Error): void => this.#parts.onEvent({ type: "trouble", detail: error.message });
    this.#parts.elsewhere?.work.drain(this.id).catch(failed);
    this.#changed.resolve();
  }

  /** Runs until no item is left or the fleet is drained. Rejects for bugs, after all running items have ended. */
  async run(): Promise<FleetSummary> {
    const { stop, store, job, elsewhere } = this.#parts;
    await this.#recorder.open();
    stop.addEventListener("abort", () => this.drain("the fleet was stopped"), { once: true });
    if (stop.aborted) this.drain("the fleet was stopped");
    const sharing = setInterval(() => void this.#lookAtShare(), SHARE_MS);
    const deliveries = this.#deliveries();
    const known = new EarlierResults(this.#parts, this.#loop, this.#recorder);
    let knowing: Promise<void> | null = null;
    let isCancelled = false;
    try {
      await this.#here.finishEarlier();
      const isMoreKnown = await known.page();
      if (elsewhere !== null && (await this.#isAnyLeft())) await this.#offer(elsewhere);
      if (isMoreKnown) knowing = known.all().catch(this.#onFailure);
      isCancelled = (await this.#claimAll(deliveries)) === "cancelled";
      await this.#here.allEnded();
      await deliveries?.allBack();
    } catch (error) {
      // Results of what still runs are recorded if the store answers again in time.
      this.drain(cannotContinue(error as Error));
      throw error;
    } finally {
      clearInterval(sharing);
      await knowing;
      await this.#here.allEnded();
      await deliveries?.[Symbol.asyncDispose]();
      this.#recorder.close();
      await this.#parts.cache?.end();
      // Items that were requeued in the meantime are cancelled too, also if it was drained before another process cancelled it.
      isCancelled ||= (await store.find(this.id))?.state === "cancelled";
      if (isCancelled) await this.#parts.queue.cancelQueued(this.#why ?? "the fleet was cancelled");
      if ((await store.end(this.id)) === null) await store.pause(this.id, this.#why ?? "the fleet ended early");
    }
    if (this.#failures.length > 0) throw this.#failures[0];
    const durationMs = Math.round(job.env.now() - this.#begunAt);
    const summary = await fleetSummary(store, this.id, { why: this.#why, durationMs });
    this.#parts.onEvent({ type: "ended", summary });
    return summary;
  }

  /** False: all have earlier results, so no machine has to prepare for them. */
  async #isAnyLeft(): Promise<boolean> {
    const { done, total } = await this.#parts.queue.counts();
    return done < total;
  }

  /** A fleet that is drained meanwhile gives machines nothing. */
  async #offer({ offer, work }: Elsewhere): Promise<void> {
    if (!this.#draining.signal.aborted) await offer();
    if (this.#draining.signal.aborted) await work.drain(this.id);
  }

  /** Returns the state of the fleet when no more items are claimed. */
  async #claimAll(deliveries: Deliveries | null): Promise<Claim["fleet"]> {
    const { queue, spec } = this.#parts;
    const runsNone = spec.concurrency === 0;
    while (!this.#draining.signal.aborted) {
      this.#changed = Promise.withResolvers();
      const isIdle = this.#here.count === 0;
      const { items: room, urgency } = runsNone ? NO_ROOM : this.#here.room;
      if (room <= 0 && !runsNone) {
        await this.#changed.promise;
        continue;
      }
      const ended = deliveries?.ended ?? 0;
      const claim = await queue.claim(room, () => ({ run: newRunId(), cell: null }), urgency);
      deliveries?.tell(claim.elsewhere, ended);
      for (const item of claim.items) void this.#here.run(item).catch(this.#onFailure);
      if (claim.items.length > 0) continue;
      if (claim.fleet !== "running") {
        this.drain(WHY_NOT_RUNNING[claim.fleet]);
        return claim.fleet;
      }
      if (isIdle && claim.nextAtMs === null && claim.elsewhere === 0) {
        // A machine may have an item in a claim that is not committed: it waits for no one, and is not elsewhere yet.
        if (deliveries === null || (await queue.counts()).queued === 0) break;
      }
      // Other processes change the queue too, and a notice of what machines did can be lost.
      const readAgainAtMs = isIdle || deliveries !== null ? Date.now() + IDLE_MS : Number.POSITIVE_INFINITY;
      await this.#changedOrDue(Math.min(claim.nextAtMs ?? readAgainAtMs, readAgainAtMs));
    }
    return "running";
  }

  /** Waits until an item ends or is due, there is room for more, or machines have done something. */
  async #changedOrDue(dueAtMs: number): Promise<void> {
    const timer = setTimeout(this.#changed.resolve, Math.min(Math.max(dueAtMs - Date.now(), 1), LONGEST_DELAY_MS));
    await this.#changed.promise;
    clearTimeout(timer);
  }

  /** If it cannot be read, the share stays as it was. */
  async #lookAtShare(): Promise<void> {
    this.#here.releaseLate();
    try {
      this.#here.resize(await this.#parts.share.look());
      this.#isShareUnknown = false;
    } catch (error) {
      const detail = `the number of other fleets on this machine cannot be read: ${(error as Error).message}`;
      if (!this.#isShareUnknown) this.#parts.onEvent({ type: "trouble", detail });
      this.#isShareUnknown = true;
    }
  }

  #deliveries(): Deliveries | null {
    const { elsewhere } = this.#parts;
    return elsewhere === null
      ? null
      : new Deliveries(this.#parts, elsewhere, this.#loop, this.#recorder, this.#onFailure);
  }

  get #loop(): FleetLoop {
    return {
      draining: this.#draining.signal,
      drain: (why) => this.drain(why),
      lost: this.#lost.signal,
      wake: () => this.#changed.resolve(),
    };
  }

  readonly #onFailure = (error: unknown): void => {
    this.#failures.push(error);
    this.drain(
      error instanceof QueueError || isHostTrouble(error) ? cannotContinue(error) : "internal error in Corral",
    );
  };

  get #why(): string | null {
    const { aborted, reason } = this.#draining.signal;
    return aborted ? (reason as Error).message : null;
  }
}

function cannotContinue({ message }: Error): string {
  return `the fleet cannot continue: ${message}`;
}

const NO_ROOM = { items: 0, urgency: "now" } as const;

const WHY_NOT_RUNNING: Readonly<Record<Exclude<Claim["fleet"], "running">, string>> = {
  paused: "the fleet is paused",
  cancelled: "the fleet was cancelled",
  done: "the fleet is done",
  taken: "another process took over the fleet",
};
