import { isDeepStrictEqual } from "node:util";
import PQueue from "p-queue";
import { z } from "zod";
import type { Decision } from "../../approval/approver.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { examine, hasMoreValues, isTooDeep, MAX_JSON_VALUES } from "../../json/parse-json.ts";
import { newRunId, outputError, type SchemaChecks } from "../../run/model/job.ts";
import { brokenResult, RUN_STATUSES } from "../../run/model/result.ts";
import { itemJob } from "../items/item-job.ts";
import type { ItemRequest, ItemResult } from "../model/item.ts";
import { type ClaimedItem, type IntendedSettlement, QueueError, type Settlement } from "../model/queue.ts";
import type { AskedElsewhere, Delivered, Runner, WorkStore } from "../model/work.ts";
import { finishBegun } from "./begun-effects.ts";
import type { Elsewhere, FleetLoop, FleetParts, OwnedParts } from "./fleet-parts.ts";
import { lostText, unrunResult } from "./item-result.ts";
import { decidedHere, QuestionsElsewhere } from "./machine-questions.ts";
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

const MAX_TEXT = 64 * 1024;
const text = z.string().max(MAX_TEXT);
const count = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const time = z.iso.datetime();

/** `status`: the rest is the coordinator's word alone: `cached`, `pending`, and what a person decides. */
const shape = z.object({
  status: z.enum(RUN_STATUSES),
  exitCode: z.number().int().min(-1).max(255).nullable(),
  output: z.unknown(),
  error: z.object({ code: z.string().regex(/^[A-Z][A-Z_]{0,63}$/), message: text }).nullable(),
  stderrLine: text.nullable(),
  startedAt: time.nullable(),
  endedAt: time,
  durationMs: count,
  memoryBytesPeak: count.nullable(),
});

const MAX_STREAM = 1024 * 1024;
const streams = z.object({ stdout: z.string().max(MAX_STREAM), stderr: z.string().max(MAX_STREAM) }).nullable();

/**
 * The result of an attempt on a machine. Which item and which attempt it is, the store knows; its changes are not settled yet. Null: it
 * does not have the shape of a result, so the machine has another version or lies. An output that is not what the worker declares fails
 * as it does here.
 */
export async function deliveredResult(
  delivered: Delivered,
  fields: ItemResult["fields"],
  worker: Pick<WorkerDefinition, "name" | "output" | "outputSchema">,
  schemas: SchemaChecks,
): Promise<{ readonly result: ItemResult; readonly streams: Settlement["streams"] } | null> {
  const [checked, printed] = [examine(shape, delivered.result), examine(streams, delivered.streams)];
  if (!checked.success || !printed.success) return null;
  const { index, key, run, attempt, machine } = delivered;
  const { output = null, ...rest } = checked.data;
  if (!isPossible(output, worker)) return null;
  const result = { ...rest, output, index, key, run, attempt, machine, fields };
  const error = rest.status === "succeeded" ? await outputError(worker, output, schemas) : null;
  return { result: error === null ? result : { ...result, status: "failed", error }, streams: printed.data };
}

/** Whether a run of the worker can have this output at all. */
function isPossible(output: unknown, worker: Pick<WorkerDefinition, "output">): boolean {
  if (worker.output === "text") return output === null || typeof output === "string";
  return !isTooDeep(output) && !hasMoreValues(output, MAX_JSON_VALUES);
}

interface DeliveryParts {
  /** The fleet, which this process owns. */
  readonly id: string;
  readonly work: WorkStore;
  /** An attempt that a machine has had for longer is taken from it. */
  readonly longestMs: number;
  /** Records what a machine delivered, or queues the item again. Rejects for bugs alone. */
  readonly settle: (delivered: Delivered) => Promise<void>;
  /** Which machines run items of it, now and then. */
  readonly onRunners: (runners: readonly Runner[]) => void;
  /** Decides on what a run on a machine asks. */
  readonly decide: (asked: AskedElsewhere, signal: AbortSignal) => Promise<Decision>;
  /** Something has changed: items were queued again, or recorded. */
  readonly onChange: () => void;
  readonly onTrouble: (detail: string) => void;
  readonly onFailure: (error: unknown) => void;
  /** If it is aborted, no more deliveries are taken: one could not be settled, and it would be taken again and again. */
  readonly stuck: AbortSignal;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
  /** Shorter if the signal is aborted. */
  readonly pause: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

const MIN_MS = 20;
/** The shortest pause between two questions who runs what, which only people want to know. */
const RUNNERS_MS = 2000;
/** Deliveries that are known at once; the others wait in the store. */
const MAX_TAKEN = 200;
/** Deliveries whose changes are judged and applied at once. Each mostly waits: for the disk, the database or a person. */
const AT_ONCE = 16;

/** What machines run of a fleet: takes what they deliver, answers what they ask, and queues again what dead ones ran. */
class ItemsElsewhere {
  readonly #parts: DeliveryParts;
  readonly #ended = new AbortController();
  readonly #settling = new PQueue({ concurrency: AT_ONCE });
  /** By index and attempt, so that none is taken twice. */
  readonly #taken = new Set<string>();
  readonly #questions: QuestionsElsewhere;
  readonly #watching: Promise<void>;
  #isTroubled = false;
  #runnersAt = Number.NEGATIVE_INFINITY;

  constructor(parts: DeliveryParts) {
    this.#parts = parts;
    this.#questions = new QuestionsElsewhere(parts);
    this.#watching = this.#watch();
  }

  /** Takes no more deliveries, and waits for those that are being recorded. */
  async end(): Promise<void> {
    this.#ended.abort();
    await this.#watching;
    await this.#questions.end();
    await this.#settling.onIdle();
  }

  async #watch(): Promise<void> {
    const { work, now, pause } = this.#parts;
    while (!this.#ended.signal.aborted) {
      const begunAt = now();
      await this.#look();
      await work.wake(this.#taken.size >= MAX_TAKEN ? MIN_MS : IDLE_MS, this.#ended.signal);
      // Notices in quick succession lead to one look.
      if (now() - begunAt < MIN_MS) await pause(MIN_MS, this.#ended.signal);
    }
  }

  async #look(): Promise<void> {
    const { id, work, longestMs, onChange, onTrouble } = this.#parts;
    try {
      await work.reclaim(id, longestMs);
      for (const delivered of await work.deliveries(id, MAX_TAKEN)) this.#take(delivered);
      await this.#questions.look();
      await this.#lookWhoRuns();
      this.#isTroubled = false;
    } catch (error) {
      if (!this.#isTroubled) onTrouble(`the queue does not answer: ${(error as Error).message}`);
      this.#isTroubled = true;
    }
    onChange();
  }

  async #lookWhoRuns(): Promise<void> {
    const { id, work, onRunners, now } = this.#parts;
    if (now() - this.#runnersAt < RUNNERS_MS) return;
    this.#runnersAt = now();
    onRunners(await work.runners(id));
  }

  #take(delivered: Delivered): void {
    const { settle, onChange, onFailure, stuck } = this.#parts;
    const name = `${delivered.index}:${delivered.attempt}`;
    if (this.#taken.has(name) || this.#taken.size >= MAX_TAKEN) return;
    if (stuck.aborted || this.#ended.signal.aborted) return;
    this.#taken.add(name);
    void this.#settling
      .add(async () => {
        if (!stuck.aborted) await settle(delivered);
      })
      .catch(onFailure)
      .finally(() => {
        this.#taken.delete(name);
        onChange();
      });
  }
}
