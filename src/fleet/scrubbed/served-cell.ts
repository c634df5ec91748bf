import fs from "node:fs";
import { join } from "node:path";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { pinned } from "../../files/host/roots.ts";
import { DiskWatch } from "../../isolation/disk/disk-watch.ts";
import { closedGate } from "../../isolation/gate/closed-gate.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import type { ServedItem, ServingCell } from "../../isolation/port/serving.ts";
import { refusalOf } from "../../isolation/sources/refused-sources.ts";
import { knownAs } from "../../run/cell/attachment-pins.ts";
import { type Broker, openBroker } from "../../run/cell/broker.ts";
import { prepare } from "../../run/cell/prepare.ts";
import { unwatched } from "../../run/cell/watch-disk.ts";
import { Disposables } from "../../run/model/disposables.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import { type Attachment, inputBytes, newRunId } from "../../run/model/job.ts";
import { SandboxError } from "../../sandbox/errors.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { type BroughtBack, bringBack } from "./bring-back.ts";
import { CellFolder, type WorkerUser } from "./cell-folder.ts";
import { type CellShape, cellSandbox, type ItemOutput } from "./shape.ts";
import { UNSERVED } from "./unserved.ts";

/** What one item brings into a cell. */
export interface ItemLoad {
  readonly run: string;
  readonly input: unknown;
  readonly attachments: readonly Attachment[];
  readonly outputs: readonly ItemOutput[];
}

/** What is left of an item when the cell is clean again, or gone. */
export interface ItemTrace {
  readonly served: ServedItem;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** Null where the command did not end by itself with a clean cell. */
  readonly broughtBack: BroughtBack | null;
}

export type OpenedServedCell =
  | { readonly ok: true; readonly cell: ServedCell }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** A cell that serves one item after another, with the folders through which they come and go. */
export class ServedCell implements AsyncDisposable {
  readonly plan: Plan;
  readonly cell: ServingCell;
  readonly #folder: CellFolder;
  readonly #broker: Broker;
  readonly #watch: DiskWatch;
  readonly #env: RunEnvironment;
  #hasEnded = false;

  static async open(
    worker: WorkerDefinition,
    fleet: Sandbox,
    shape: CellShape,
    env: RunEnvironment,
    signal: AbortSignal,
  ): Promise<OpenedServedCell> {
    const run = newRunId();
    await using opening = new Disposables();
    const broker = opening.use(await openBroker(env.ownerDir, run));
    const folder = opening.use(await CellFolder.make(join(env.ownerDir, `${run}.cell`), shape.writes.length));
    lend(folder, shape);
    const items = { io: folder.io, attachments: folder.attachments, gate: await closedGate(env.gate) };
    const sandbox = cellSandbox(fleet, shape, folder.outputs);
    const place = { run, root: run, parent: null, worker: worker.name, attachments: [] };
    const job = { ...place, worker, attachments: [] };
    await using preparation = await prepare(job, sandbox, { ...broker, items, views: { paths: new Set() } }, env);
    if (!preparation.ok) return { ok: false, violations: preparation.violations };
    const { plan, pins } = preparation;
    const started = await env.driver.startServing({ plan, pins, signal });
    if (!started.ok) return { ok: false, violations: started.violations };
    opening.use(started.cell);
    folder.takeOutputsBack();
    broker.serve(UNSERVED);
    const watch = opening.use(
      await DiskWatch.start({
        places: [folder.path],
        limitBytes: plan.limits.fileBytes + SMALL_FILES_BYTES,
        unnamedBytes: () => started.cell.unnamedBytes(),
        onFailure: (error) => env.emit({ type: "trouble", ...place, detail: unwatched(error) }),
      }),
    );
    watch.exceeded.addEventListener("abort", () => void started.cell.kill("SIGKILL").catch(() => {}), { once: true });
    opening.release();
    return { ok: true, cell: new ServedCell({ plan, cell: started.cell, folder, broker, watch, env }) };
  }

  private constructor(parts: {
    plan: Plan;
    cell: ServingCell;
    folder: CellFolder;
    broker: Broker;
    watch: DiskWatch;
    env: RunEnvironment;
  }) {
    this.plan = parts.plan;
    this.cell = parts.cell;
    this.#folder = parts.folder;
    this.#broker = parts.broker;
    this.#watch = parts.watch;
    this.#env = parts.env;
    void this.cell.exit.then(() => {
      this.#hasEnded = true;
    });
  }

  /** True where it can serve nobody any more. */
  get hasEnded(): boolean {
    return this.#hasEnded || this.isOverDisk;
  }

  /** True where the cell was ended for what its item wrote. */
  get isOverDisk(): boolean {
    return this.#watch.exceeded.aborted;
  }

  /** Lays out what the item brings; answers with what is wrong with a folder or an attachment, where anything is. */
  lay({ input, attachments, outputs }: ItemLoad): readonly Violation[] {
    const { user } = this.plan;
    this.#folder.layStreams(inputBytes(input), user);
    const folders = outputs.flatMap(({ index, parts, path }) =>
      unlessFault(path, () => this.#folder.makeOutput(index, parts, user)),
    );
    const files = attachments.flatMap((attachment) => this.#layAttachment(attachment));
    return [...folders, ...files];
  }

  /** Runs the item's command, and takes what it left. The cell is clean afterwards, or gone. */
  async serve({ run, outputs }: ItemLoad): Promise<ItemTrace> {
    const { limits } = this.plan;
    const served = await this.cell.serve(run);
    const most = limits.outputBytes;
    const [stdout, stderr] = [this.#folder.printed("out", most), this.#folder.printed("err", most)];
    const succeeded = served.kind !== "gone" && served.code === 0;
    const brought = succeeded ? this.#bringBack(outputs) : null;
    return { served, stdout, stderr, broughtBack: brought };
  }

  async clear(): Promise<void> {
    await this.#folder.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#watch[Symbol.asyncDispose]();
    try {
      await this.cell[Symbol.asyncDispose]();
    } catch (error) {
      if (!(error instanceof EngineTrouble)) throw error;
    } finally {
      await this.#broker[Symbol.asyncDispose]();
      await this.#folder[Symbol.asyncDispose]();
    }
  }

  #bringBack(outputs: readonly ItemOutput[]): BroughtBack {
    let [files, bytes] = [0, 0];
    for (const output of outputs) {
      const from = this.#folder.outputAt(output.index, output.parts);
      const done = broughtBack(from, output, this.plan.limits.fileBytes - bytes);
      if (done.refusal !== null) return done;
      files += done.files;
      bytes += done.bytes;
    }
    return { refusal: null, files, bytes };
  }

  /**
   * A copy, opened without following links: the item sees this file, and whoever comes next does not. Synchronous, for
   * the calls are many and none of them waits for anybody.
   */
  #layAttachment(attachment: Attachment): Violation[] {
    const { name, host, identity } = attachment;
    const path = knownAs(attachment);
    const refuse = (reason: string): Violation[] => [{ code: "MOUNT_SOURCE_REFUSED", path, reason }];
    const refusal = refusalOf(host, this.#env.refusedSources);
    if (refusal !== null) return refuse(refusal);
    using found = pinned(host);
    if (found === null) return refuse("it does not exist, or a symbolic link stands in its path");
    const { dev, ino } = found.stat();
    if (!found.stat().isFile()) return refuse("an attachment is one regular file");
    if (identity !== undefined && identity !== `${dev}:${ino}`)
      return refuse("it is not the file any more that its caller was given");
    const to = join(this.#folder.attachments, name);
    return unlessFault(path, () => {
      fs.copyFileSync(found.path(), to, fs.constants.COPYFILE_EXCL | fs.constants.COPYFILE_FICLONE);
      fs.chmodSync(to, 0o444);
    });
  }
}

/** What stands in the place may have been left by a worker, at another time: that refuses this item, and ends no fleet. */
function broughtBack(from: string, output: ItemOutput, maxBytes: number): BroughtBack {
  try {
    return bringBack(from, output, maxBytes);
  } catch (error) {
    const { path } = output;
    if (error instanceof SandboxError)
      return { refusal: { path: error.path ?? path, reason: NOT_ITS_PLACE }, files: 0, bytes: 0 };
    const code = faultOf(error);
    if (code === null) throw error;
    const reason = IN_THE_WAY.has(code) ? NOT_ITS_PLACE : `it could not be moved there (${code})`;
    return { refusal: { path, reason }, files: 0, bytes: 0 };
  }
}

const NOT_ITS_PLACE = "something else stands in its place, such as a link, or a folder where it has a file";
const IN_THE_WAY: ReadonlySet<string> = new Set(["EEXIST", "EISDIR", "ELOOP", "ENOTDIR", "ENOTEMPTY"]);

/** One item's names may be such as no file can have; that is its own fault and no other's. */
function unlessFault(path: string, act: () => void): Violation[] {
  try {
    act();
    return [];
  } catch (error) {
    const code = faultOf(error);
    if (code === null) throw error;
    return [{ code: "MOUNT_SOURCE_REFUSED", path, reason: `it could not be made there (${code})` }];
  }
}

/** What the host lacks says nothing about an item. */
const OF_THE_HOST: ReadonlySet<string> = new Set(["EDQUOT", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EROFS"]);

/** The code of an error about this file; null for a bug. */
function faultOf(error: unknown): string | null {
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === undefined || syscall === undefined) return null;
  if (OF_THE_HOST.has(code)) throw new EngineTrouble(`what an item brings or leaves found no place: ${code}`);
  return code;
}

/** As for any cell: one file may be as large as the limit, and beside it there may be small ones. */
const SMALL_FILES_BYTES = 1024 ** 2;

/** The plan takes the owner of what can be written for the cell's user. */
function lend(folder: CellFolder, { writes }: CellShape): void {
  const [first] = writes;
  if (first === undefined) return;
  const { uid, gid } = fs.statSync(first.host);
  folder.lendOutputsTo({ uid, gid } satisfies WorkerUser);
}
