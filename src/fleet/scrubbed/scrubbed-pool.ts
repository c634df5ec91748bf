import { HeldFolders } from "../../files/host/folder.ts";
import { MAX_TIMER_MS } from "../../platform/within.ts";
import { BoundedOutput, identityOf, inputViolations, type Job } from "../../run/model/job.ts";
import { permissionOf } from "../../run/model/permission.ts";
import {
  describeAll,
  type RunResult,
  refusedResult,
  type StopReason,
  unstartedResult,
} from "../../run/model/result.ts";
import { endedResult, recordedRun } from "../../run/recorded-run.ts";
import {
  type ItemLoad,
  type ItemTrace,
  ServedCell,
  type ServedCellOpening,
  type ServedCellRequest,
} from "./served-cell.ts";
import { type CellShape, itemFit, shapeKey } from "./shape.ts";

interface ScrubbedPoolOptions extends Omit<ServedCellRequest, "shape" | "held"> {
  /** How many cells may exist at once; it may change. */
  readonly size: () => number;
}

/** An idle cell, and the key of its shape. */
interface Standing {
  readonly key: string;
  readonly cell: ServedCell;
}

/** Cells of one worker and one fleet, each for one item at a time, scrubbed in between; a cell that is not clean is discarded. */
export class ScrubbedPool implements AsyncDisposable {
  readonly #options: ScrubbedPoolOptions;
  readonly #idle: Standing[] = [];
  readonly #held = new HeldFolders();
  #trimmed: Promise<unknown> = Promise.resolve();

  constructor(options: ScrubbedPoolOptions) {
    this.#options = options;
  }

  /** One item. Every outcome is a result; it rejects only for a bug. As many at once as there may be cells. */
  async run(job: Job): Promise<RunResult> {
    return await recordedRun(job, this.#options.env, () => this.#permitted(job));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    using _ = this.#held;
    await Promise.all([this.#trimmed, ...this.#idle.splice(0).map(({ cell }) => cell[Symbol.asyncDispose]())]);
  }

  /** Begins to remove idle cells, if fewer are allowed than before. The pool ends after that, and reports what failed. */
  trim(): void {
    const over = this.#idle.splice(0, Math.max(0, this.#idle.length - this.#options.size()));
    if (over.length === 0) return;
    const before = this.#trimmed;
    this.#trimmed = Promise.all([before, ...over.map(({ cell }) => cell[Symbol.asyncDispose]())]).then(() => {});
    this.#trimmed.catch(() => {});
  }

  async #permitted(job: Job): Promise<RunResult> {
    const { env, fleet } = this.#options;
    const who = { run: job.run, worker: job.worker.name };
    const derivation = await permissionOf(job.worker, job.callerSandbox, job.narrow, env);
    const violations = [...(derivation.ok ? [] : derivation.violations), ...(await inputViolations(job, env.schemas))];
    if (!derivation.ok || violations.length > 0) return refusedResult(who, violations);
    const fit = itemFit(fleet, derivation.sandbox);
    if (!fit.ok) return unstartedResult(who, "refused", { code: "NOT_FIT_FOR_REUSE", message: fit.reason });
    const standing = await this.#claim(fit.shape);
    if ("violations" in standing) return refusedResult(who, standing.violations);
    const load = { who: identityOf(job), input: job.input, attachments: job.attachments, outputs: fit.outputs };
    return await this.#served(job, load, standing);
  }

  async #claim(shape: CellShape): Promise<Standing | Extract<ServedCellOpening, { ok: false }>> {
    const key = shapeKey(shape);
    const ended = this.#idle.filter(({ cell }) => cell.hasEnded);
    for (const one of ended) this.#idle.splice(this.#idle.indexOf(one), 1);
    for (const { cell } of ended) await cell[Symbol.asyncDispose]();
    const index = this.#idle.findIndex((standing) => standing.key === key);
    const [found] = index < 0 ? [] : this.#idle.splice(index, 1);
    if (found !== undefined) return found;
    // A cell of another shape makes room: idle and busy cells together are at most as many as may run.
    if (this.#idle.length >= this.#options.size()) await this.#idle.shift()?.cell[Symbol.asyncDispose]();
    const { worker, fleet, env, signal } = this.#options;
    const opened = await ServedCell.open({ worker, fleet, shape, env, signal, held: this.#held });
    return opened.ok ? { key, cell: opened.cell } : opened;
  }

  /** The cell is idle again afterwards, or gone. */
  async #served(job: Job, load: ItemLoad, standing: Standing): Promise<RunResult> {
    const { cell } = standing;
    let isClean = false;
    try {
      const violations = await cell.lay(load);
      if (violations.length > 0) {
        isClean = true;
        return refusedResult({ run: job.run, worker: job.worker.name }, violations);
      }
      await job.turn?.();
      const { trace, stopped } = await this.#supervised(job, load, cell);
      // A cell that was killed may end a moment later, under the next item.
      isClean = trace.cell === "ended" && stopped === null && !cell.hasEnded;
      return await this.#result(job, cell, trace, stopped);
    } finally {
      await this.#giveBack(job, standing, isClean);
    }
  }

  async #giveBack(job: Job, standing: Standing, isClean: boolean): Promise<void> {
    // If fewer cells are allowed than before, the next idle one is removed.
    if (isClean && this.#idle.length < this.#options.size()) {
      try {
        await standing.cell.clear();
        this.#idle.push(standing);
        return;
      } catch (error) {
        // A cell that cannot be emptied is never used again.
        const detail = `a cell is discarded, since an item's files in it could not be removed: ${(error as Error).message}`;
        this.#options.env.emit({ type: "trouble", ...identityOf(job), detail });
      }
    }
    await standing.cell[Symbol.asyncDispose]();
  }

  /** A cell is removed with an item that exceeds a bound: it could not be trusted after a part of it was killed. */
  async #supervised(
    job: Job,
    load: ItemLoad,
    cell: ServedCell,
  ): Promise<{ trace: ItemTrace; stopped: StopReason | null }> {
    let stopped: StopReason | null = null;
    const stop = (reason: StopReason): void => {
      stopped ??= reason;
      cell.kill();
    };
    const timer = setTimeout(() => stop("timed_out"), Math.min(cell.plan.limits.timeoutMs, MAX_TIMER_MS));
    const onCancel = (): void => stop("cancelled");
    job.signal.addEventListener("abort", onCancel, { once: true });
    if (job.signal.aborted) onCancel();
    try {
      const trace = await cell.serve(load);
      if (trace.cell === "gone" && cell.isOverDisk) stopped ??= "disk_limit";
      return { trace, stopped };
    } finally {
      clearTimeout(timer);
      job.signal.removeEventListener("abort", onCancel);
    }
  }

  async #result(
    job: Job,
    { plan }: ServedCell,
    { exit, enforcement, stdout, stderr, refusal }: ItemTrace,
    stopped: StopReason | null,
  ): Promise<RunResult> {
    const output = new BoundedOutput(
      plan.limits.outputBytes,
      (stream, chunk) => this.#options.env.emit({ type: "output", ...identityOf(job), stream, chunk }),
      () => {},
    );
    output.add("stdout", stdout);
    output.add("stderr", stderr);
    const reason = stopped ?? (output.truncated ? "output_limit" : null);
    const itsPlan = { ...plan, run: job.run, root: job.root };
    const ended = { exit, stopped: reason, output, enforcement, calls: [] };
    const result = await endedResult(job.worker, itsPlan, ended, this.#options.env.schemas);
    if (refusal === null || result.status !== "succeeded") return result;
    const violations = describeAll([{ code: "CHANGE_REFUSED", ...refusal }]);
    const message = violations.map((violation) => violation.message).join("\n");
    return { ...result, status: "refused", violations, error: { code: "CHANGES_REFUSED", message } };
  }
}
