import fs from "node:fs";
import { join } from "node:path";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { copyInto } from "../../files/host/content.ts";
import { HeldFolders } from "../../files/host/folder.ts";
import type { Enforcement, Plan } from "../../isolation/plan/plan.ts";
import { type CellExit, KILLED, type ServedItem, type ServingCell } from "../../isolation/port/cell.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import { Disposables } from "../../platform/disposables.ts";
import { isHostTrouble } from "../../platform/errno.ts";
import { MAX_TIMER_MS } from "../../platform/within.ts";
import { type OpenedCell, openCell, servingCellKind } from "../../run/cell/open-cell.ts";
import { knownAs } from "../../run/cell/prepare.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import type { RunIdentity } from "../../run/model/events.ts";
import {
  type Attachment,
  BoundedOutput,
  identityOf,
  inputBytes,
  inputEnvironment,
  inputViolations,
  type Job,
  newRunId,
} from "../../run/model/job.ts";
import { permissionOf } from "../../run/model/permission.ts";
import {
  describeAll,
  type RunResult,
  refusedResult,
  type StopReason,
  unstartedResult,
} from "../../run/model/result.ts";
import { endedResult, recordedRun } from "../../run/recorded-run.ts";
import { SandboxError } from "../../sandbox/errors.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { type BroughtBack, bringBack, CellFolder } from "./cell-folder.ts";
import { type CellShape, cellSandbox, type ItemOutput, itemFit, shapeKey } from "./shape.ts";

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
      const laying = cell.lay(load, job.signal);
      const violations = await (job.reading?.(laying) ?? laying);
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

/** What one item brings into a cell. */
interface ItemLoad {
  readonly who: RunIdentity;
  readonly input: unknown;
  readonly attachments: readonly Attachment[];
  readonly outputs: readonly ItemOutput[];
}

/** What an item leaves when the cell is clean again, or gone. */
interface ItemTrace {
  /** How the cell is after it. */
  readonly cell: ServedItem["kind"];
  readonly exit: CellExit;
  readonly enforcement: Enforcement;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** Why nothing was brought back; null if all was, or if the command failed. */
  readonly refusal: BroughtBack["refusal"];
}

interface ServedCellRequest {
  readonly worker: WorkerDefinition;
  /** What the fleet as a whole may see: each item's sandbox is a part of it. */
  readonly fleet: Sandbox;
  readonly shape: CellShape;
  readonly env: RunEnvironment;
  readonly signal: AbortSignal;
  /** The folders on the host from which items come and to which they go. */
  readonly held: HeldFolders;
}

type ServedCellOpening =
  | { readonly ok: true; readonly cell: ServedCell }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** A cell that serves one item after another, with the folders through which they come and go. */
class ServedCell implements AsyncDisposable {
  readonly plan: Plan;
  readonly #opened: OpenedCell<ServingCell>;
  readonly #folder: CellFolder;
  readonly #env: RunEnvironment;
  readonly #held: HeldFolders;

  static async open({ worker, fleet, shape, env, signal, held }: ServedCellRequest): Promise<ServedCellOpening> {
    const run = newRunId();
    await using opening = new Disposables();
    const folder = opening.use(await CellFolder.make(join(env.ownerDir, `${run}.cell`), shape.writes.length));
    const [first] = shape.writes;
    if (first !== undefined) folder.lendOutputsTo(fs.statSync(first.host));
    const items = { io: folder.io, attachments: folder.attachments };
    const kind = servingCellKind(items, folder.path);
    const sandbox = cellSandbox(fleet, shape, folder.outputs);
    const place = { run, root: run, parent: null };
    const job = { ...place, worker, attachments: [] };
    const owner = { ...place, worker: worker.name, attachments: [] };
    const opened = opening.use(await openCell({ job, sandbox, kind, owner, signal, accept: null }, env));
    if (!opened.ok) return { ok: false, violations: opened.violations };
    await folder.takeOutputsBack((dirs) => env.driver.startSteward({ plan: opened.plan, dir: folder.path, dirs }));
    opening.move();
    return { ok: true, cell: new ServedCell(opened, folder, env, held) };
  }

  private constructor(opened: OpenedCell<ServingCell>, folder: CellFolder, env: RunEnvironment, held: HeldFolders) {
    this.plan = opened.plan;
    this.#opened = opened;
    this.#folder = folder;
    this.#env = env;
    this.#held = held;
  }

  /** True once it can serve no item any more. */
  get hasEnded(): boolean {
    return this.#opened.hasEnded() || this.isOverDisk;
  }

  /** True if the cell was ended for what its item wrote. */
  get isOverDisk(): boolean {
    return this.#opened.overDisk.aborted;
  }

  /** Ends the cell, with whatever runs in it. */
  kill(): void {
    this.#opened.kill();
  }

  /** Lays out the item's files. Returns what is wrong with a folder or an attachment. */
  async lay({ input, attachments, outputs }: ItemLoad, signal: AbortSignal): Promise<readonly Violation[]> {
    const { user } = this.plan;
    this.#folder.layStreams(inputBytes(input), inputEnvironment(input), user);
    const violations: Violation[] = [];
    for (const { index, parts, path } of outputs)
      violations.push(...(await unlessFault(path, () => this.#folder.makeOutput(index, parts, user))));
    for (const attachment of attachments) violations.push(...(await this.#layAttachment(attachment, signal)));
    if (violations.length === 0) await this.#folder.lay();
    return violations;
  }

  /** Runs the item's command, and takes what it left. The cell is clean afterwards, or gone. */
  async serve({ who, outputs }: ItemLoad): Promise<ItemTrace> {
    const { limits } = this.plan;
    const cell = this.#opened.begin(who, null);
    const served = await cell.serve(who.run);
    const most = limits.outputBytes;
    const [stdout, stderr] = [this.#folder.printed("out", most), this.#folder.printed("err", most)];
    if (served.kind !== "gone") await this.#folder.take();
    const succeeded = served.kind !== "gone" && served.code === 0;
    const refusal = succeeded ? await this.#bringBack(outputs) : null;
    const exit = await exitOf(served, cell);
    return { cell: served.kind, exit, enforcement: cell.enforcement, stdout, stderr, refusal };
  }

  async clear(): Promise<void> {
    await this.#folder.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using _ = this.#folder;
    await this.#opened[Symbol.asyncDispose]();
  }

  async #bringBack(outputs: readonly ItemOutput[]): Promise<BroughtBack["refusal"]> {
    let bytes = 0;
    for (const output of outputs) {
      const from = this.#folder.outputAt(output.index, output.parts);
      const done = await broughtBack(from, output, this.plan.limits.diskBytes - bytes, this.#held);
      if (done.refusal !== null) return done.refusal;
      bytes += done.bytes;
    }
    return null;
  }

  /** A copy, opened without following links: this item sees the file, and the next one does not. */
  async #layAttachment(attachment: Attachment, signal: AbortSignal): Promise<Violation[]> {
    const { name, host, identity, view } = attachment;
    const path = knownAs(attachment);
    const refuse = (reason: string): Violation[] => [{ code: "MOUNT_SOURCE_REFUSED", path, reason }];
    // What is shown in the place of a file is Corral's own.
    const refusal = view === undefined ? refusalOf(host, this.#env.refusedSources) : null;
    if (refusal !== null) return refuse(refusal);
    using found = this.#held.pinned(host);
    if (found === null) return refuse("it does not exist, or its path contains a symbolic link");
    const stats = found.stat();
    if (!stats.isFile()) return refuse("an attachment is one regular file");
    if (identity !== undefined && identity !== `${stats.dev}:${stats.ino}`)
      return refuse("it is not the file any more that its caller was given");
    return await unlessFault(path, async () => {
      using source = found.reopen(fs.constants.O_RDONLY);
      using file = this.#folder.newAttachment(name);
      await copyInto(source, file, signal);
      // As in a cell of its own, where it is the file itself: what is copied from it has the same mode.
      fs.fchmodSync(file.fd, (stats.mode & 0o777) | 0o444);
    });
  }
}

/** A worker may have left something at the destination earlier: that refuses this item, and does not end the fleet. */
async function broughtBack(
  from: string,
  output: ItemOutput,
  maxBytes: number,
  held: HeldFolders,
): Promise<BroughtBack> {
  try {
    return await bringBack(from, output, maxBytes, held);
  } catch (error) {
    const { path } = output;
    if (error instanceof SandboxError)
      return { refusal: { path: error.path ?? path, reason: NOT_ITS_PLACE }, bytes: 0 };
    const code = faultOf(error);
    if (code === null) throw error;
    if (code === "EAGAIN") return { refusal: { path, reason: LEASED }, bytes: 0 };
    const reason = IN_THE_WAY.has(code) ? NOT_ITS_PLACE : `it could not be moved there (${code})`;
    return { refusal: { path, reason }, bytes: 0 };
  }
}

const NOT_ITS_PLACE = "something else is at its destination, such as a link, or a folder in place of a file";
const LEASED = "another program holds it with a lease";
const IN_THE_WAY: ReadonlySet<string> = new Set(["EEXIST", "EISDIR", "ELOOP", "ENOTDIR", "ENOTEMPTY"]);

/** An item's names may be impossible for files: that refuses the item, and no other. */
async function unlessFault(path: string, act: () => void | Promise<void>): Promise<Violation[]> {
  try {
    await act();
    return [];
  } catch (error) {
    const code = faultOf(error);
    if (code === null) throw error;
    const reason = code === "EAGAIN" ? LEASED : `it could not be made there (${code})`;
    return [{ code: "MOUNT_SOURCE_REFUSED", path, reason }];
  }
}

/** The code of an error about this file; null for a bug. */
function faultOf(error: unknown): string | null {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === undefined || syscall === undefined) return null;
  if (isHostTrouble(error)) throw new EngineTrouble(`the host could not store what an item brings or leaves: ${code}`);
  return code;
}

const UNMEASURED = { cpuMs: null, memoryBytesPeak: null };

/** How the item's command ended, reported as for a cell of its own. */
async function exitOf(served: ServedItem, cell: ServingCell): Promise<CellExit> {
  if (served.kind !== "gone")
    return { kind: "exited", code: served.code, outOfMemory: served.outOfMemory, usage: UNMEASURED };
  const exit = await cell.exit;
  if (exit.kind === "lost") return exit;
  // The cell's own first process is killed only together with everything else in it, or for memory.
  if (exit.outOfMemory) return { ...exit, code: KILLED };
  return exit.code === KILLED ? exit : { kind: "lost", reason: "the cell ended by itself" };
}
