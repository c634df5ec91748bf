import PQueue from "p-queue";
import { z } from "zod";
import type { Decision } from "../../approval/approver.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { examine, hasMoreValues, isTooDeep, MAX_JSON_VALUES } from "../../json/parse-json.ts";
import { outputError, type SchemaChecks } from "../../run/model/job.ts";
import { RUN_STATUSES } from "../../run/model/result.ts";
import type { ItemResult } from "../model/item.ts";
import type { Settlement } from "../model/queue.ts";
import type { AskedElsewhere, Delivered, Runner, WorkStore } from "../model/work.ts";
import { QuestionsElsewhere } from "./machine-questions.ts";

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

interface Parts {
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

/** The longest pause between two looks at the store, and the shortest. */
const IDLE_MS = 1000;
const MIN_MS = 20;
/** The shortest pause between two questions who runs what, which only people want to know. */
const RUNNERS_MS = 2000;
/** Deliveries that are known at once; the others wait in the store. */
const MAX_TAKEN = 200;
/** Deliveries whose changes are judged and applied at once. Each mostly waits: for the disk, the database or a person. */
const AT_ONCE = 16;

/** What machines run of a fleet: takes what they deliver, answers what they ask, and queues again what dead ones ran. */
export class ItemsElsewhere {
  readonly #parts: Parts;
  readonly #ended = new AbortController();
  readonly #settling = new PQueue({ concurrency: AT_ONCE });
  /** By index and attempt, so that none is taken twice. */
  readonly #taken = new Set<string>();
  readonly #questions: QuestionsElsewhere;
  readonly #watching: Promise<void>;
  #isTroubled = false;
  #runnersAt = Number.NEGATIVE_INFINITY;

  constructor(parts: Parts) {
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
