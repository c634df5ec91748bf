import { join } from "node:path";
import PQueue from "p-queue";
import { BlobRefused, type BlobStore } from "../../blobs/blob.ts";
import { type FetchedFile, FetchedFiles } from "../../blobs/fetched-files.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { bugText } from "../../platform/errno.ts";
import { type Attachment, type Job, newRunId } from "../../run/model/job.ts";
import { brokenResult, type RunResult, UnfinishedChanges, unstartedResult } from "../../run/model/result.ts";
import { fullDisk } from "../../run/recorded-run.ts";
import { ASK } from "../../sandbox/approval.ts";
import { formatBytes } from "../../text/amounts.ts";
import { itemJob } from "../items/item-job.ts";
import { ATTACHED_LIMITS, type ItemResult, isFailure } from "../model/item.ts";
import { type ClaimedItem, QueueError, type Settlement, type Urgency } from "../model/queue.ts";
import { finishBegun, ItemEffects } from "./begun-effects.ts";
import { type Concurrency, type FleetLoop, type FleetParts, Semaphore } from "./fleet-parts.ts";
import { cachedResult, type ItemExecutor, itemResult, lostText, unrunResult } from "./item-result.ts";
import { isRunTrouble, type ResultRecorder, UNRUN } from "./result-recorder.ts";

/**
 * Runs items with the attachments that were sent for them, also at home: a file from which one is copied may change while the item runs.
 * `ownerDir`: of this process. Disposing disposes of `cells` too.
 */
export function withFetchedAttachments(
  cells: ItemExecutor,
  { blobs, ownerDir }: { readonly blobs: BlobStore; readonly ownerDir: string },
): ItemExecutor {
  const files = new FetchedFiles(blobs, join(ownerDir, `${newRunId()}.fetched`));
  return {
    async run(job) {
      if (job.attachments.every(({ sent }) => sent === undefined)) return await cells.run(job);
      const opened: FetchedFile[] = [];
      try {
        const attachments: Attachment[] = [];
        checkBounds(job.attachments);
        for (const attachment of job.attachments)
          attachments.push(await broughtHere(attachment, files, opened, job.signal));
        return await cells.run({ ...job, attachments });
      } catch (error) {
        const who = { run: job.run, worker: job.worker.name };
        if (job.signal.aborted) return unstartedResult(who, "cancelled", CANCELLED);
        if (!(error instanceof Unfetched)) throw error;
        return unstartedResult(who, "refused", { code: "ITEM_REFUSED", message: error.message });
      } finally {
        for (const file of opened) file[Symbol.dispose]();
      }
    },
    async [Symbol.asyncDispose]() {
      await using _ = files;
      await cells[Symbol.asyncDispose]();
    },
  };
}

class Unfetched extends Error {}

const CANCELLED = { code: "CANCELLED", message: "The item was ended while its attachments were fetched." };

/** What is said of them is another machine's word. */
function checkBounds(attachments: Job["attachments"]): void {
  const bytes = attachments.reduce((sum, { sent }) => sum + (sent?.bytes ?? 0), 0);
  if (attachments.length > ATTACHED_LIMITS.files || bytes > ATTACHED_LIMITS.bytes)
    throw new Unfetched(
      `its attachments are more than ${ATTACHED_LIMITS.files} files, or than ${formatBytes(ATTACHED_LIMITS.bytes)}`,
    );
}

async function broughtHere(
  { sent, ...attachment }: Attachment,
  files: FetchedFiles,
  opened: FetchedFile[],
  signal: AbortSignal,
): Promise<Attachment> {
  if (sent === undefined) return attachment;
  try {
    const file = await files.open(sent, signal, attachment.host);
    opened.push(file);
    const { host } = file;
    return { ...attachment, host, view: { origin: host, asked: ASK } };
  } catch (error) {
    if (!(error instanceof BlobRefused)) throw error;
    const what = attachment.asked ?? attachment.name;
    throw new Unfetched(`the attachment ${what} cannot be fetched: ${error.message}. Retry the item to send it again`);
  }
}

/** Items are claimed ahead that begin within about so much time. */
const AHEAD_MS = 100;
const MAX_AHEAD = 32;
/** What takes longer to be read is told: nothing of it seems to run. */
const READING_MS = 3000;

export interface AheadParts {
  /** Settles when the item has ended. */
  readonly begin: (item: ClaimedItem) => Promise<void>;
  readonly giveBack: (item: ClaimedItem) => Promise<void>;
  /** Milliseconds of a clock that only goes forward. */
  readonly now: () => number;
  /** False: no item waits here longer than until there is a place for it. */
  readonly isUsed: boolean;
}

interface Waiting {
  readonly begin: () => void;
  readonly giveBack: () => void;
}

/**
 * Items that are claimed and have not begun, so that quick items do not wait for the store. Only as many as begin within a moment, judged
 * by how long items of late took: of items that take seconds none is claimed before there is a place for it.
 */
export class ClaimedAhead {
  /** Items that run at once. */
  lanes = 1;
  readonly #parts: AheadParts;
  readonly #waiting: Waiting[] = [];
  readonly #back = new Set<Promise<void>>();
  /** When each item that runs began; the oldest first. */
  readonly #running = new Map<symbol, number>();
  /** How long items of late took; null: none has ended. */
  #recentMs: number | null = null;
  #isOver = false;

  constructor(parts: AheadParts) {
    this.#parts = parts;
  }

  get count(): number {
    return this.#waiting.length;
  }

  /** How many more to claim; 0 while half of them are left, so that several are claimed together. */
  get missing(): number {
    const most = this.#most();
    return 2 * this.count > most ? -this.count : most - this.count;
  }

  /** Settles when the item has ended, or was given back. */
  async add(item: ClaimedItem): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push({
      begin: () => resolve(this.#parts.begin(item)),
      giveBack: () => resolve(this.#givenBack(item)),
    });
    if (this.#isOver) this.end();
    await promise;
  }

  /** False if there is none. */
  beginNext(): boolean {
    const next = this.#waiting.shift();
    next?.begin();
    return next !== undefined;
  }

  /** Call it when an item begins to run; the answer when it has ended, also more than once. */
  measure(): () => void {
    const { now } = this.#parts;
    const [id, begunAt] = [Symbol("item"), now()];
    this.#running.set(id, begunAt);
    return () => {
      if (!this.#running.delete(id)) return;
      const tookMs = now() - begunAt;
      this.#recentMs = ((this.#recentMs ?? tookMs) * 3 + tookMs) / 4;
    };
  }

  /** Gives items back that were expected to begin sooner: those that run now take longer than those before. */
  releaseLate(): void {
    if (this.#most() === 0) this.#giveAllBack();
  }

  /** Gives back all, also those that come later. */
  end(): void {
    this.#isOver = true;
    this.#giveAllBack();
  }

  async allBack(): Promise<void> {
    await Promise.allSettled(this.#back);
  }

  #giveAllBack(): void {
    for (const { giveBack } of this.#waiting.splice(0)) giveBack();
  }

  async #givenBack(item: ClaimedItem): Promise<void> {
    const back = this.#parts.giveBack(item);
    this.#back.add(back);
    try {
      await back;
    } finally {
      this.#back.delete(back);
    }
  }

  #most(): number {
    if (!this.#parts.isUsed || this.#recentMs === null || this.#isOver) return 0;
    const [oldest] = this.#running.values();
    const elapsedMs = oldest === undefined ? 0 : this.#parts.now() - oldest;
    return Math.min(MAX_AHEAD, Math.floor((AHEAD_MS * this.lanes) / Math.max(1, this.#recentMs, elapsedMs)));
  }
}

/** The attempts that this process runs, as many at once as its share of the machine allows. */
export class ItemsHere {
  readonly #fleet: FleetParts;
  readonly #loop: FleetLoop;
  readonly #recorder: ResultRecorder;
  readonly #semaphore = new Semaphore(1);
  /** Items in work, including those whose cells are only prepared, and those whose results are being recorded. */
  readonly #flight = new PQueue({ concurrency: 1 });
  readonly #ahead: ClaimedAhead;
  /** As many items at once as the share allows, with those whose cells are prepared. */
  #width = 1;

  constructor(fleet: FleetParts, loop: FleetLoop, recorder: ResultRecorder) {
    this.#fleet = fleet;
    this.#loop = loop;
    this.#recorder = recorder;
    this.#ahead = new ClaimedAhead({
      begin: (item) => this.#flight.add(() => this.#attempt(item)),
      giveBack: (item) => recorder.giveBack(item),
      now: fleet.job.env.now,
      // A journal on this machine answers at once.
      isUsed: fleet.store.database !== null,
    });
    this.#flight.addEventListener("next", () => this.#changed());
    recorder.onRecording = () => this.#changed();
    loop.draining.addEventListener("abort", () => this.#ahead.end(), { once: true });
    this.resize(fleet.share.concurrency);
  }

  /** Applies to items that start later. */
  resize({ running, warm }: Concurrency): void {
    const before = this.#width;
    // A fleet that runs nothing here claims nothing for here.
    this.#semaphore.concurrency = Math.max(1, running);
    this.#width = Math.max(1, running + warm);
    this.#ahead.lanes = Math.max(1, running);
    if (this.#width !== before) this.#changed();
  }

  /** Items in work, and those that were claimed for later. */
  get count(): number {
    return this.#flight.pending + this.#flight.size + this.#ahead.count;
  }

  /** Items that can be added now. `urgency`: whether a place waits for one. */
  get room(): { readonly items: number; readonly urgency: Urgency } {
    const items = this.#recorder.isHeld ? 0 : this.#free + this.#ahead.missing;
    return { items, urgency: this.#ahead.count > 0 ? "soon" : "now" };
  }

  /** Rejects for bugs and for a failing Engine. */
  async run(claimed: ClaimedItem): Promise<void> {
    const ended = this.#ahead.add(claimed);
    this.#changed();
    await ended;
  }

  /** Claimed items that will not begin in time are given back. */
  releaseLate(): void {
    if (this.#fleet.elsewhere !== null) this.#ahead.releaseLate();
  }

  async allEnded(): Promise<void> {
    await this.#ahead.allBack();
    await this.#flight.onIdle();
  }

  get #free(): number {
    return this.#flight.concurrency - this.#flight.pending - this.#flight.size;
  }

  /** An item may begin for each that has ended, also while that one is recorded. */
  #changed(): void {
    this.#flight.concurrency = this.#width + this.#recorder.recording;
    const { isHeld } = this.#recorder;
    this.#semaphore.isHeld = isHeld;
    while (!isHeld && this.#free > 0 && this.#ahead.beginNext());
    this.#loop.wake();
  }

  /** Finishes what attempts of dead processes had begun. Each result is reported as soon as it is recorded: after a crash in between, no process reports it. */
  async finishEarlier(): Promise<void> {
    const { applying = [], spec, queue, job } = this.#fleet;
    const ports = { queue, changesets: job.env.changesets };
    for (const item of applying)
      if (!this.#loop.lost.aborted) await this.#finished((tell) => finishBegun(item, spec.worker, ports, tell));
  }

  async #finished(finish: (tell: (result: ItemResult) => Promise<void>) => Promise<void>): Promise<void> {
    const why = "changes that were begun cannot be finished now";
    await this.#recorder.unlessTrouble(why, () => finish((result) => this.#recorder.tell(result)));
  }

  async #attempt(claimed: ClaimedItem): Promise<void> {
    const { stop, onEvent, job } = this.#fleet;
    const { draining } = this.#loop;
    const { request, attempt } = claimed;
    const ends = new AbortController();
    const onStop = (): void => ends.abort(stop.reason);
    const onDrain = (): void => ends.abort(draining.reason);
    stop.addEventListener("abort", onStop);
    draining.addEventListener("abort", onDrain);
    if (stop.aborted) onStop();
    if (draining.aborted) onDrain();
    let endTurn = (): void => {};
    let ran = (): void => {};
    let startedAt: Date | null = null;
    const turn = async (): Promise<void> => {
      endTurn = await this.#semaphore.acquire(ends.signal);
      // From now on only a stop ends it.
      draining.removeEventListener("abort", onDrain);
      startedAt = new Date();
      ran = this.#ahead.measure();
      onEvent({ type: "started", index: request.index, key: request.key, attempt, at: job.env.now() });
    };
    try {
      const hasRun: Turn["hasRun"] = (result) => {
        ran();
        if (result.status === "succeeded") endTurn();
      };
      await this.#work(claimed, { signal: ends.signal, turn, startedAt: () => startedAt, hasRun });
    } finally {
      ran();
      stop.removeEventListener("abort", onStop);
      draining.removeEventListener("abort", onDrain);
      endTurn();
    }
  }

  async #work(claimed: ClaimedItem, { signal, turn, startedAt, hasRun }: Turn): Promise<void> {
    const { id, job: fleet, queue, cache, executor, troubles } = this.#fleet;
    const { request, run } = claimed;
    if (request.refusal !== undefined) {
      const error = { code: "ITEM_REFUSED", message: request.refusal };
      return await this.#settle(claimed, { ...unrunResult(claimed, "refused"), error }, UNRUN);
    }
    const effects = new ItemEffects(claimed, { queue, changesets: fleet.env.changesets }, startedAt);
    const begin: Job["begin"] = async (foreseen) => await effects.begin(foreseen);
    const reading: Job["reading"] = (work) => this.#reading(request.key, work);
    const job = itemJob(fleet, request, { run, fleet: id, signal, turn, begin, reading });
    const entry = cache === null ? null : await reading(cache.entryOf(job));
    const earlier = entry === null ? null : ((await cache?.earlier(entry)) ?? null);
    if (earlier !== null) return await this.#settle(claimed, cachedResult(claimed, earlier), UNRUN);
    const ran = await executor.run(job).catch((error: unknown) => this.#brokenRun(claimed, error, effects));
    hasRun(ran);
    // The next owner of the fleet finishes what was begun; what was not runs again there.
    if (this.#loop.lost.aborted && (effects.hasBegun || effects.isUnknown || effects.isInherited)) return;
    const result = itemResult(claimed, ran, startedAt(), troubles.take(run));
    if (effects.hasBegun && CUT_OFF.has(result.status)) return await this.#finish(effects, result);
    if (effects.isUnknown) return this.#loop.drain("it could not be recorded that an item begins to change files");
    // A withdrawn attempt does not count: the item runs when the fleet is resumed.
    if (result.status === "cancelled" && signal.aborted) return await this.#recorder.giveUp(claimed);
    const cacheKey = result.status === "succeeded" ? await entry?.keyAfter() : null;
    const more = { cacheKey: cacheKey ?? null, streams: ran };
    if (!effects.hasBegun) return await this.#settle(claimed, result, more);
    const full = this.#fullDisk();
    await this.#recorder.record(claimed, this.#recorder.unretried(claimed, result), more, {
      hasBegun: true,
      urgency: this.room.urgency,
    });
    if (full !== null) this.#loop.drain(full);
  }

  async #reading<T>(key: string, read: Promise<T>): Promise<T> {
    const timer = setTimeout(() => this.#fleet.onEvent({ type: "reading", key }), READING_MS);
    return await read.finally(() => clearTimeout(timer));
  }

  /**
   * The result of a run that a bug ended. It says nothing of the other items: they continue, and this one never runs again, unless it is
   * not known whether it has begun.
   */
  #brokenRun({ request, run }: ClaimedItem, error: unknown, { isUnknown, hasBegun }: ItemEffects): RunResult {
    const { troubles, onEvent, spec } = this.#fleet;
    // What it has begun is finished, now or when the fleet is resumed.
    if (error instanceof UnfinishedChanges && hasBegun) return brokenResult({ run, worker: spec.worker });
    if (isRunTrouble(error) || error instanceof QueueError) throw error;
    const bug = `internal error: ${bugText(error)}`;
    troubles.add(run, bug);
    onEvent({ type: "trouble", detail: isUnknown ? bug : lostText(request.key, error) });
    return brokenResult({ run, worker: spec.worker });
  }

  /** The run was cut off after it had begun to change files: it does not run again. */
  async #finish(effects: ItemEffects, { error }: ItemResult): Promise<void> {
    if (error?.code === "HOST_TROUBLE") this.#loop.drain(this.#fullDisk() ?? error.message);
    await this.#finished((tell) => effects.finish(this.#fleet.spec.worker, tell));
  }

  /** The attempt has changed nothing outside of its sandbox. */
  async #settle(claimed: ClaimedItem, result: ItemResult, more: Omit<Settlement, "result">): Promise<void> {
    const { status, error } = result;
    // The machine has no more of something that all items need: the next item would fail as well.
    const full = status === "cached" ? null : this.#fullDisk();
    if (full !== null && isFailure(status)) return await this.#giveUpAndDrain(claimed, full);
    if (error?.code === "HOST_TROUBLE") return await this.#giveUpAndDrain(claimed, error.message);
    if (await this.#recorder.retried(claimed, result)) return;
    if (error?.code === "INTERNAL") {
      const why = "what an attempt kept cannot be removed now";
      return await this.#recorder.unlessTrouble(why, () => this.#recorder.recordBroken(claimed, result));
    }
    // The failures say nothing about the item: it runs when the fleet is resumed.
    if (status === "lost" && !(await this.#engineAnswers()))
      return await this.#giveUpAndDrain(claimed, "the container engine does not answer");
    await this.#recorder.record(claimed, result, more, { hasBegun: false, urgency: this.room.urgency });
    // A program may say nothing of what it could not write: its successors do not begin.
    if (full !== null) this.#loop.drain(full);
  }

  /** Why items fail now whatever they are, with what to do; null: where Corral and items write is room. */
  #fullDisk(): string | null {
    const { env, sandbox } = this.#fleet.job;
    const written = sandbox.mounts.filter(({ mode }) => mode === "rw").map(({ host }) => host);
    return fullDisk(written, env);
  }

  async #giveUpAndDrain(claimed: ClaimedItem, why: string): Promise<void> {
    await this.#recorder.giveUp(claimed);
    this.#loop.drain(why);
  }

  async #engineAnswers(): Promise<boolean> {
    try {
      await this.#fleet.job.env.driver.list();
      return true;
    } catch (error) {
      if (!(error instanceof EngineTrouble)) throw error;
      return false;
    }
  }
}

/** When one attempt may run. */
interface Turn {
  readonly signal: AbortSignal;
  readonly turn: () => Promise<void>;
  readonly startedAt: () => Date | null;
  /** The next one may begin while a success is recorded. Anything else can drain the fleet, so that one waits until it is recorded. */
  readonly hasRun: (ran: RunResult) => void;
}

/** The run itself was not ended by its worker. */
const CUT_OFF: ReadonlySet<string> = new Set(["cancelled", "lost"]);
