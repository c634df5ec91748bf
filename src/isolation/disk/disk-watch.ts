import { constants, openSync, statfsSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { Descriptor } from "../../files/host/descriptor.ts";
import { treeUsage } from "./tree-usage.ts";

/** The size of one directory, and the free space of its file system, at the first check. */
export interface PlaceBefore {
  readonly bytes: number;
  readonly names: number;
  readonly freeBytes: number;
}

/**
 * What there was before anything was written. The cells of one session share it: each may use what the ones before it
 * have left of the limit.
 */
export class DiskBaseline {
  readonly #places = new Map<string, Promise<PlaceBefore>>();

  /** Measures each place once. Parallel callers share the first measurement: a later one might include what was written since. */
  async of(place: Descriptor, signal: AbortSignal): Promise<PlaceBefore> {
    const { dev, ino } = place.stat();
    const key = `${dev}:${ino}`;
    const known = this.#places.get(key) ?? looked(place, signal);
    this.#places.set(key, known);
    try {
      return await known;
    } catch (error) {
      // A cancelled measurement is not a result.
      if (this.#places.get(key) === known) this.#places.delete(key);
      throw error;
    }
  }
}

async function looked(place: Descriptor, signal: AbortSignal): Promise<PlaceBefore> {
  const { bytes, names } = await treeUsage(place, Number.POSITIVE_INFINITY, signal);
  return { bytes, names, freeBytes: freeSpace(place).bytes };
}

/** Every name takes some space of the file system itself. */
const INODE_BYTES = 4096;

/** Of the file system of a directory, in bytes. Synchronous: it is called often, and the kernel answers from memory. */
function freeSpace(place: Descriptor): { readonly bytes: number; readonly total: number } {
  const { bsize, bfree, blocks, files, ffree } = statfsSync(place.path());
  return { bytes: bsize * bfree + INODE_BYTES * ffree, total: bsize * blocks + INODE_BYTES * files };
}

/** One file may be as large as a disk limit, which the kernel enforces; there may be small ones beside it. */
export const SMALL_FILES_BYTES = 1024 ** 2;

export interface DiskWatchOptions {
  /** Directories that a run may write, each as a path that cannot be redirected. */
  readonly places: readonly string[];
  /** How many bytes they may grow together since the watch began. */
  readonly limitBytes: number;
  /** Bytes of deleted files that the run's programs still hold; null if not known. */
  readonly unnamedBytes: () => Promise<number | null>;
  /**
   * Called with each measurement. Ends what holds files on their way to Corral itself, and returns true if there was any.
   * Their size is not known: if more space is gone than the limit, they count as the cause.
   */
  readonly inTransit?: () => boolean;
  /** Called with the reason if it cannot watch any more, before `exceeded` is aborted: a run that is not watched must end. */
  readonly onFailure: (error: unknown) => void;
  /** The sizes before the first of several cells; absent: before this one. */
  readonly baseline?: DiskBaseline;
}

const { O_DIRECTORY, O_RDONLY } = constants;

/** How many checks may fail one after another. */
const MAX_FAILED_LOOKS = 20;
/** How often free space is checked: that costs one system call. */
const POLL_MS = 50;
/** A tree is measured if this part of the limit may be used, and also from time to time. */
const SUSPICIOUS_PART = 4;
const WALK_EVERY_MS = 3000;
/** Pause after a walk, as a multiple of its duration; once its duration if the whole limit may be used. */
const REST_FACTOR = 8;
/** Up to this many names are always measured, because it takes almost no time. */
const FEW_NAMES = 2000;
/** If less than this part of the disk is free and the writer is not known, the run is assumed to be the cause. */
const LOW_PART = 20;

interface Place {
  readonly root: Descriptor;
  readonly before: PlaceBefore;
}

/**
 * Watches what a run writes while it runs: no kernel limit bounds the sum of its files. `exceeded` is aborted when the
 * limit is passed. Free space shows cheaply that something was written; the directory trees show whether this run did.
 */
export class DiskWatch implements AsyncDisposable {
  readonly exceeded: AbortSignal;
  readonly #options: DiskWatchOptions;
  readonly #roots: readonly Descriptor[];
  readonly #exceed = new AbortController();
  readonly #over = new AbortController();
  #places: readonly Place[] = [];
  #watching: Promise<void> = Promise.resolve();

  /** Measures the directories before the run begins. Without directories nothing is watched. */
  static async start(options: DiskWatchOptions): Promise<DiskWatch> {
    const watch = new DiskWatch(options);
    try {
      await watch.#begin();
      return watch;
    } catch (error) {
      await watch[Symbol.asyncDispose]();
      throw error;
    }
  }

  private constructor(options: DiskWatchOptions) {
    this.#options = options;
    this.#roots = options.places.map((path) => new Descriptor(openSync(path, O_DIRECTORY | O_RDONLY)));
    this.exceeded = this.#exceed.signal;
  }

  /** Checks once more after the run: it may have written between two checks. */
  async isExceeded(): Promise<boolean> {
    if (this.exceeded.aborted) return true;
    if (this.#places.length === 0) return false;
    const { limitBytes } = this.#options;
    const { gone } = this.#free();
    const isFew = this.#places.reduce((names, { before }) => names + before.names, 0) < FEW_NAMES;
    if (!isFew && gone <= limitBytes / SUSPICIOUS_PART) return false;
    const { grown, complete } = await this.#usage();
    return grown > limitBytes || (!complete && gone > limitBytes);
  }

  async hasGrownBy(bytes: number): Promise<boolean> {
    return this.#places.length > 0 && (await this.#usage()).grown >= bytes;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#watching;
    for (const root of this.#roots) root[Symbol.dispose]();
  }

  async #begin(): Promise<void> {
    const { baseline = new DiskBaseline() } = this.#options;
    const places: Place[] = [];
    for (const root of this.#roots) places.push({ root, before: await baseline.of(root, this.#over.signal) });
    this.#places = places;
    if (places.length === 0) return;
    this.#watching = this.#watch().catch((error: unknown) => {
      if (this.#over.signal.aborted) return;
      this.#options.onFailure(error);
      this.#exceed.abort(error);
    });
  }

  async #watch(): Promise<void> {
    const { limitBytes } = this.#options;
    let failed = 0;
    let walked = { at: performance.now(), tookMs: 0, gone: 0 };
    for (;;) {
      await pause(POLL_MS, undefined, { signal: this.#over.signal, ref: false });
      const free = this.#free();
      const since = performance.now() - walked.at;
      const more = free.gone - walked.gone;
      const rest = more > limitBytes ? walked.tookMs : walked.tookMs * REST_FACTOR;
      if (since < rest || (more <= limitBytes / SUSPICIOUS_PART && since < WALK_EVERY_MS)) continue;
      const begunAt = performance.now();
      const isOver = await this.#isOver(free).catch((error: unknown) => {
        // A check can fail because files change at that moment; too many failures in a row end the watch.
        failed += 1;
        if (failed > MAX_FAILED_LOOKS || this.#over.signal.aborted) throw error;
        return null;
      });
      if (isOver !== null) failed = 0;
      const at = performance.now();
      walked = { at, tookMs: at - begunAt, gone: free.gone };
      if (isOver) return this.#exceed.abort();
    }
  }

  async #isOver({ gone, isLow }: Free): Promise<boolean> {
    const { limitBytes, unnamedBytes, inTransit = () => false } = this.#options;
    const wasInTransit = inTransit();
    const { grown, complete } = await this.#usage();
    if (grown > limitBytes) return true;
    if (gone <= limitBytes) return false;
    if (wasInTransit) return true;
    // More space is used than the trees show: by other processes, deleted files, or folders that cannot be read.
    if (!complete) return true;
    const unnamed = await unnamedBytes();
    if (unnamed !== null && grown + unnamed > limitBytes) return true;
    return isLow && gone - grown - (unnamed ?? 0) > limitBytes;
  }

  /** How much the trees have grown. Counting stops soon above the limit. */
  async #usage(): Promise<{ grown: number; complete: boolean }> {
    let [grown, isComplete] = [0, true];
    for (const { root, before } of this.#places) {
      const enough = before.bytes + this.#options.limitBytes - Math.min(0, grown);
      const { bytes, complete } = await treeUsage(root, enough, this.#over.signal);
      grown += bytes - before.bytes;
      isComplete &&= complete;
    }
    return { grown, complete: isComplete };
  }

  /** For all file systems of the directories: how much space was used since the beginning, and whether one is nearly full. */
  #free(): Free {
    const devices = new Map(this.#places.map((place) => [place.root.stat().dev, place]));
    let [gone, isLow] = [0, false];
    for (const { root, before } of devices.values()) {
      const { bytes, total } = freeSpace(root);
      gone += before.freeBytes - bytes;
      isLow ||= bytes < total / LOW_PART;
    }
    return { gone, isLow };
  }
}

type Free = { readonly gone: number; readonly isLow: boolean };
