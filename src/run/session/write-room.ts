import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import PQueue from "p-queue";
import type { Stage } from "../../changes/stage.ts";
import type { GuardedFiles } from "../../files/guarded.ts";
import { type DiskBaseline, DiskWatch, SMALL_FILES_BYTES } from "../../isolation/disk/disk-watch.ts";
import { planLimits } from "../../isolation/plan/plan-for.ts";
import { type PinnedSource, pinSources } from "../../isolation/sources/pin.ts";
import { Disposables } from "../../platform/disposables.ts";
import { formatBytes } from "../../text/amounts.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { CellHost } from "../model/environment.ts";

/** How much output a session keeps for all its commands together: the oldest files are removed first. */
const MAX_KEPT_BYTES = 256 * 1024 * 1024;

/** The directories with the whole output of one session's commands, and with their pipes; removed with the session. */
export class OutputDir implements AsyncDisposable {
  readonly path: string;
  /** Named pipes of commands that have not begun. No other user can list it. */
  readonly pipes: string;
  readonly #kept: { readonly name: string; readonly bytes: number }[] = [];
  #used = false;

  /** Below this process's own directory, so that it is reaped with it. Readable, because the cell has another user. */
  static async make(ownerDir: string, run: string): Promise<OutputDir> {
    const path = join(ownerDir, `${run}.out`);
    const pipes = join(ownerDir, `${run}.pipes`);
    await mkdir(path, { mode: 0o755 });
    await mkdir(pipes, { mode: 0o711 });
    return new OutputDir(path, pipes);
  }

  private constructor(path: string, pipes: string) {
    this.path = path;
    this.pipes = pipes;
  }

  /** True after the first file was kept. */
  get isUsed(): boolean {
    return this.#used;
  }

  /** Counts a new file, and removes the oldest files if all are too large together; the newest stays. */
  async keep(name: string, bytes: number): Promise<void> {
    if (bytes === 0) return;
    this.#used = true;
    this.#kept.push({ name, bytes });
    let total = this.#kept.reduce((sum, file) => sum + file.bytes, 0);
    while (total > MAX_KEPT_BYTES && this.#kept.length > 1) {
      const oldest = this.#kept.shift();
      if (oldest === undefined) return;
      total -= oldest.bytes;
      await rm(join(this.path, oldest.name), { force: true });
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true, force: true });
    await rm(this.pipes, { recursive: true, force: true });
  }
}

/**
 * Checks the run's disk limit before each write of the tools on the host: there is no cell to watch. What the tools and
 * the session's cells write counts together.
 */
export class WriteRoom {
  readonly #stage: Stage;
  readonly #baseline: DiskBaseline;
  readonly #env: CellHost;
  /** One after another: concurrent writes would each see all the free space. */
  readonly #writes = new PQueue({ concurrency: 1 });

  constructor(stage: Stage, baseline: DiskBaseline, env: CellHost) {
    this.#stage = stage;
    this.#baseline = baseline;
    this.#env = env;
  }

  /** The most bytes that one file may have. */
  get maxBytes(): number {
    return planLimits(this.#stage.sandbox).diskBytes;
  }

  /** The same files. They refuse to write if the limit is reached; deleting and moving still work. */
  holding(files: GuardedFiles): GuardedFiles {
    const held =
      <Args extends unknown[], Result>(write: (...args: Args) => Promise<Result>) =>
      async (...args: Args): Promise<Result> =>
        await this.#writes.add(async () => {
          await this.#refuseWhereUsedUp();
          return await write(...args);
        });
    const { write, append, edit, copy, mkdir } = files;
    const all = { write: held(write), append: held(append), edit: held(edit), copy: held(copy), mkdir: held(mkdir) };
    // A person is not asked about what there is no room for.
    const foresee: GuardedFiles["foresee"] = async (intended, options) => {
      if (intended.operation !== "delete" && intended.operation !== "move") await this.#refuseWhereUsedUp();
      return await files.foresee(intended, options);
    };
    return { ...files, ...all, foresee };
  }

  async #refuseWhereUsedUp(): Promise<void> {
    const { sandbox, written } = this.#stage;
    const direct = sandbox.mounts.filter(({ mode, view }) => mode === "rw" && view === undefined);
    await using pins = new Disposables();
    const sources: PinnedSource[] = [];
    for (const host of new Set(direct.map((mount) => mount.host))) {
      // One by one: a directory that cannot be opened cannot be written to either, and must not hide the others.
      const pinning = await pinSources([host], this.#env.refusedSources);
      if (!pinning.ok) continue;
      pins.use(pinning.pins);
      sources.push(...pinning.pins.sources.values());
    }
    await using watch = await DiskWatch.start({
      places: [...outermost(sources), ...written],
      limitBytes: this.maxBytes + SMALL_FILES_BYTES,
      unnamedBytes: async () => 0,
      onFailure: () => {},
      baseline: this.#baseline,
    });
    if (!(await watch.isExceeded())) return;
    const limit = formatBytes(this.maxBytes);
    throw new ToolRefusal(
      "DISK_LIMIT",
      `The run has written more than its disk limit of ${limit}. Delete files (delete_file) before you write more.`,
    );
  }
}

/** A directory inside another one is counted with the outer one. */
function outermost(sources: readonly PinnedSource[]): string[] {
  const folders = sources.filter(({ kind }) => kind === "directory");
  const isInside = (one: PinnedSource): boolean =>
    folders.some((outer) => one.device === outer.device && one.host.startsWith(`${outer.host}/`));
  return folders.filter((one) => !isInside(one)).map(({ descriptorPath }) => descriptorPath);
}
