import { constants, openSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { setTimeout as pause } from "node:timers/promises";
import { Descriptor } from "../../files/host/descriptor.ts";
import { treeUsage } from "./tree-usage.ts";

export interface DiskWatchOptions {
  /** Directories that a run may write into, each by a path that cannot lead elsewhere. */
  readonly places: readonly string[];
  /** How much more they may take together than when the watch began, in bytes. */
  readonly limitBytes: number;
  /** What the run's programs still hold open of files that have no name any more, in bytes; null where it is not known. */
  readonly unnamedBytes: () => Promise<number | null>;
}

const { O_DIRECTORY, O_RDONLY } = constants;

/** How often free space is looked at: that costs a system call. */
const POLL_MS = 150;
/** A tree is added up when as much of the limit may be gone, and anyway from time to time. */
const SUSPICIOUS_PART = 4;
const WALK_EVERY_MS = 3000;
/** How long others have the processor after a walk, as a multiple of what it took. */
const REST_FACTOR = 8;
/** Where space runs out and nobody can be told from others, it is taken to be this run. */
const LOW_PART = 20;
/** A name takes some space of the file system's own, whatever it holds. */
const INODE_BYTES = 4096;

/**
 * Watches what a run writes, while it runs: no limit of the kernel bounds the sum of its files. `exceeded` is aborted
 * when the limit is passed. Free space tells cheaply that something was written; the trees tell by whom.
 */
export class DiskWatch implements AsyncDisposable {
  readonly exceeded: AbortSignal;
  readonly #options: DiskWatchOptions;
  readonly #roots: readonly Descriptor[];
  readonly #exceed = new AbortController();
  readonly #over = new AbortController();
  #before = 0;
  #start: Free = { bytes: 0, total: 0 };
  #watching: Promise<void> = Promise.resolve();

  /** Adds up what is there already; the run must not have begun. Nothing to write to: nothing is watched. */
  static async start(options: DiskWatchOptions): Promise<DiskWatch> {
    const watch = new DiskWatch(options);
    await watch.#begin();
    return watch;
  }

  private constructor(options: DiskWatchOptions) {
    this.#options = options;
    this.#roots = options.places.map((path) => new Descriptor(openSync(path, O_DIRECTORY | O_RDONLY)));
    this.exceeded = this.#exceed.signal;
  }

  /** Looks once more when the run has ended: it may have written faster than anybody looked. */
  async isExceeded(): Promise<boolean> {
    if (this.exceeded.aborted) return true;
    if (this.#roots.length === 0) return false;
    const free = await this.#free();
    if (this.#start.bytes - free.bytes <= this.#options.limitBytes) return false;
    return (await this.#usage(this.#before + this.#options.limitBytes)).bytes - this.#before > this.#options.limitBytes;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort();
    await this.#watching;
    for (const root of this.#roots) root[Symbol.dispose]();
  }

  async #begin(): Promise<void> {
    if (this.#roots.length === 0) return;
    this.#before = (await this.#usage(Number.POSITIVE_INFINITY)).bytes;
    this.#start = await this.#free();
    this.#watching = this.#watch().catch((error: unknown) => {
      // What cannot be watched is not allowed to go on.
      if (!this.#over.signal.aborted) this.#exceed.abort(error);
    });
  }

  async #watch(): Promise<void> {
    const { limitBytes } = this.#options;
    let walkedAt = performance.now();
    let freeThen = this.#start.bytes;
    let rest = 0;
    for (;;) {
      await pause(POLL_MS, undefined, { signal: this.#over.signal, ref: false });
      const free = await this.#free();
      const since = performance.now() - walkedAt;
      const suspicious = freeThen - free.bytes > limitBytes / SUSPICIOUS_PART;
      if (since < rest || (!suspicious && since < WALK_EVERY_MS)) continue;
      const begunAt = performance.now();
      const isOver = await this.#isOver(free);
      walkedAt = performance.now();
      rest = (walkedAt - begunAt) * REST_FACTOR;
      freeThen = free.bytes;
      if (isOver) return this.#exceed.abort();
    }
  }

  async #isOver(free: Free): Promise<boolean> {
    const { limitBytes, unnamedBytes } = this.#options;
    const usage = await this.#usage(this.#before + limitBytes);
    const grown = usage.bytes - this.#before;
    if (grown > limitBytes) return true;
    if (this.#start.bytes - free.bytes <= limitBytes) return false;
    // More is gone than the trees show: it may be others', or files without a name, or folders that cannot be read.
    if (!usage.complete) return true;
    const unnamed = await unnamedBytes();
    if (unnamed !== null) return grown + unnamed > limitBytes;
    return free.bytes < free.total / LOW_PART;
  }

  async #usage(enough: number): Promise<{ bytes: number; complete: boolean }> {
    let bytes = 0;
    let complete = true;
    for (const root of this.#roots) {
      const usage = await treeUsage(root, enough - bytes, this.#over.signal);
      bytes += usage.bytes;
      complete &&= usage.complete;
    }
    return { bytes, complete };
  }

  /** Over all file systems that the places are on. */
  async #free(): Promise<Free> {
    const devices = new Map(this.#roots.map((root) => [root.stat().dev, root]));
    let [bytes, total] = [0, 0];
    for (const root of devices.values()) {
      const { bsize, bfree, blocks, ffree } = await statfs(root.path());
      bytes += bsize * bfree + INODE_BYTES * ffree;
      total += bsize * blocks + INODE_BYTES * ffree;
    }
    return { bytes, total };
  }
}

interface Free {
  readonly bytes: number;
  readonly total: number;
}
