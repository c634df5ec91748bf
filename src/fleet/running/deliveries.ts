import { isDeepStrictEqual } from "node:util";
import { newRunId } from "../../run/model/job.ts";
import { brokenResult } from "../../run/model/result.ts";
import { deliveredResult, ItemsElsewhere } from "../elsewhere/items-elsewhere.ts";
import { decidedHere } from "../elsewhere/machine-questions.ts";
import { itemJob } from "../items/item-job.ts";
import type { ItemRequest } from "../model/item.ts";
import { type ClaimedItem, type IntendedSettlement, QueueError } from "../model/queue.ts";
import type { Delivered, Runner } from "../model/work.ts";
import { finishBegun } from "./begun-effects.ts";
import type { Elsewhere, FleetLoop, FleetParts, OwnedParts } from "./fleet-parts.ts";
import { lostText, unrunResult } from "./item-result.ts";
import { isRunTrouble, type ResultRecorder, UNRUN } from "./result-recorder.ts";

/** The longest wait for a notice of machines, since one can be lost. */
const IDLE_MS = 1000;

/** Beyond twice its time limit: for the wait for its turn, the start of its cell, and what it delivers. */
const GRACE_MS = 15 * 60_000;

/** How long a machine may have an item. It waits for its turn behind at most one other. */
function longestAttemptMs({ spec, job: { sandbox } }: FleetParts): number {
  return 2 * (spec.timeoutMs ?? sandbox.limits.timeoutMs ?? sandbox.policy.maxLimits.timeoutMs) + GRACE_MS;
}

/** What machines do for a fleet: their attempts are checked, their changes settled, and their results recorded. */
export class Deliveries implements AsyncDisposable {
  readonly #fleet: OwnedParts;
  readonly #elsewhere: Elsewhere;
  readonly #recorder: ResultRecorder;
  readonly #items: ItemsElsewhere;
  readonly #lost: AbortSignal;
  /** A delivery could not be settled: it waits for the next owner of the fleet, and so do the others. */
  readonly #stuck = new AbortController();
  #running: number | null = 0;
  #ended = 0;
  #runners: readonly Runner[] = [];

  /** Takes deliveries until it is disposed. `onFailure` gets bugs. */
  constructor(
    fleet: OwnedParts,
    elsewhere: Elsewhere,
    { wake, lost }: FleetLoop,
    recorder: ResultRecorder,
    onFailure: (error: unknown) => void,
  ) {
    this.#fleet = fleet;
    this.#elsewhere = elsewhere;
    this.#recorder = recorder;
    this.#lost = lost;
    const { id, onEvent, job } = fleet;
    const { work, pause } = elsewhere;
    const onTrouble = (detail: string): void => onEvent({ type: "trouble", detail });
    this.#items = new ItemsElsewhere({
      id,
      work,
      pause,
      stuck: this.#stuck.signal,
      settle: (delivered) => this.#settleOrWait(delivered),
      onFailure: (error) => {
        this.#stuck.abort();
        onFailure(error);
      },
      onRunners: (runners) => this.#tellRunners(runners),
      onChange: wake,
      onTrouble,
      decide: decidedHere(job, onTrouble),
      now: job.env.now,
      longestMs: longestAttemptMs(fleet),
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#items.end();
  }

  /** Attempts of machines whose results are reported here. */
  get ended(): number {
    return this.#ended;
  }

  /**
   * Reports how many items machines run, if that has changed. `endedBefore`: {@link ended} when the store was asked. What has ended since
   * may still be in its answer, and no item counts twice.
   */
  tell(counted: number, endedBefore: number): void {
    const running = Math.max(0, counted - (this.#ended - endedBefore));
    if (running === this.#running) return;
    this.#running = running;
    this.#fleet.onEvent({ type: "elsewhere", running });
  }

  #tellRunners(machines: readonly Runner[]): void {
    if (isDeepStrictEqual(machines, this.#runners)) return;
    this.#runners = machines;
    this.#fleet.onEvent({ type: "machines", machines });
  }

  /**
   * Waits for what machines run, until it is stopped, or a delivery cannot be settled. An item of this process that could not be finished
   * waits for `resume`.
   */
  async allBack(): Promise<void> {
    const { queue } = this.#fleet;
    const stop = AbortSignal.any([this.#fleet.stop, this.#stuck.signal]);
    while (!stop.aborted) {
      const { ended } = this;
      const claim = await queue.claim(0, () => ({ run: newRunId(), cell: null }));
      this.tell(claim.elsewhere, ended);
      if (claim.elsewhere === 0) return;
      await this.#elsewhere.work.wake(IDLE_MS, stop);
    }
  }

  /** If the Engine or this machine fails, the delivery waits for the next owner of the fleet. */
  async #settleOrWait(delivered: Delivered): Promise<void> {
    let isSettled = false;
    await this.#recorder.unlessTrouble("what a machine delivered cannot be settled now", async () => {
      await this.#settle(delivered).catch((error: unknown) => {
        if (!this.#lost.aborted) throw error;
      });
      isSettled = true;
    });
    if (!isSettled) this.#stuck.abort();
  }

  /** One attempt on a machine: everything in it is that machine's word. */
  async #settle(delivered: Delivered): Promise<void> {
    const { job, store, queue, onEvent, stop, id } = this.#fleet;
    const { index, key, attempt, earlier, run, machine } = delivered;
    const request = (await store.item(id, key))?.request;
    if (request === undefined) throw new Error(`the fleet has no item ${key}`);
    onEvent({ type: "started", index, key, attempt, at: job.env.now(), machine });
    const claimed: ClaimedItem = { request, attempt, earlier, run, cell: null };
    const broken: BrokenAttempt = { claimed, machine, begun: null };
    const checked = await this.#unlessBug(broken, () =>
      deliveredResult(delivered, request.fields ?? {}, job.worker, job.env.schemas),
    );
    if (checked === BROKEN) return;
    if (checked === null) {
      const message = `The machine ${machine} delivered a result that is not valid. Check its version of Corral.`;
      const lost = {
        ...unrunResult(claimed, "lost"),
        run,
        attempt,
        machine,
        error: { code: "DELIVERY_REFUSED", message },
      };
      this.#end();
      if (!(await this.#recorder.retried(claimed, lost)))
        await this.#recorder.record(claimed, lost, UNRUN, { hasBegun: false });
      return;
    }
    const { result, streams } = checked;
    this.#end();
    if (await this.#recorder.retried(claimed, result)) return;
    // It counts until its changes are settled.
    this.#ended -= 1;
    const ended = { delivered, request, result, streams };
    // From its first effect on, the attempt never runs again.
    const onBegun = (intent: IntendedSettlement): void => {
      broken.begun = intent;
    };
    const settled = await this.#unlessBug(broken, () =>
      this.#elsewhere.settleChanges(ended, { fleet: id, job, queue, signal: stop, onBegun }),
    );
    if (settled === BROKEN) return;
    if (settled === null)
      return onEvent({ type: "trouble", detail: `attempt ${attempt} of item ${key} no longer counts` });
    if (this.#lost.aborted) return;
    // It was stopped before it had decided: the delivery waits for the next owner of the fleet.
    if (settled.result.status === "cancelled" && !settled.hasBegun && stop.aborted)
      return await job.env.changesets.drop(run, "its coordinator was stopped", () => queue.confirm());
    const cacheKey = settled.result.status === "succeeded" ? await this.#cacheKey(delivered, request) : null;
    this.#end();
    await this.#recorder.record(claimed, settled.result, { cacheKey, streams }, settled);
  }

  /** Its result is about to be reported, and who hears it counts one item less on machines. */
  #end(): void {
    this.#ended += 1;
    this.#running = null;
  }

  /** Null if its machine did not run it with what this process sent: then it is not known what it depends on. */
  async #cacheKey({ more, run }: Delivered, request: ItemRequest): Promise<string | null> {
    const { cache, job, id, stop } = this.#fleet;
    if (cache === null || !isDeepStrictEqual(more, { agreed: this.#elsewhere.agreed })) return null;
    return await cache.keyElsewhere(itemJob(job, request, { run, fleet: id, signal: stop, turn: async () => {} }));
  }

  /** As at home: a bug at one item says nothing of the others. Then its result is recorded, and nothing is left to do for it. */
  async #unlessBug<T>(attempt: BrokenAttempt, work: () => Promise<T>): Promise<T | typeof BROKEN> {
    try {
      return await work();
    } catch (error) {
      if (!this.#isBug(error)) throw error;
      this.#fleet.onEvent({ type: "trouble", detail: lostText(attempt.claimed.request.key, error) });
      await this.#endBroken(attempt);
      return BROKEN;
    }
  }

  /** Not a failure of the store, the Engine or this machine, which says nothing about the item. */
  #isBug(error: unknown): boolean {
    if (this.#lost.aborted || this.#fleet.stop.aborted || error instanceof QueueError) return false;
    return !isRunTrouble(error) && (error as { syscall?: unknown }).syscall === undefined;
  }

  /** What it had begun to change is finished. It never runs again. */
  async #endBroken({ claimed, machine, begun }: BrokenAttempt): Promise<void> {
    const { job, queue, spec } = this.#fleet;
    const { request, attempt, run } = claimed;
    this.#end();
    if (begun === null) {
      const { error } = brokenResult({ run, worker: spec.worker });
      const lost = { ...unrunResult(claimed, "lost"), run, attempt, machine, error };
      return await this.#recorder.recordBroken(claimed, lost);
    }
    const item = { index: request.index, key: request.key, attempt, run, intent: begun };
    const ports = { queue, changesets: job.env.changesets };
    await finishBegun(item, spec.worker, ports, (result) => this.#recorder.tell(result));
  }
}

/** A delivery that a bug may end. `begun`: what its attempt has recorded before its first effect. */
interface BrokenAttempt {
  readonly claimed: ClaimedItem;
  readonly machine: string;
  begun: IntendedSettlement | null;
}

const BROKEN = Symbol("a bug has ended it");
