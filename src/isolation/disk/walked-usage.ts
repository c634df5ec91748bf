import fs from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Descriptor, mountIdOf } from "../../files/host/descriptor.ts";
import { hasCode } from "../../platform/errno.ts";
import { type TreeUsage, UsageSum } from "./usage-sum.ts";

/** How many names are checked before the event loop has a turn. */
const SLICE = 500;
/** Deeper folders are not measured, and make the result incomplete. */
const MAX_DEPTH = 256;

/** Measures a tree in this process. Null if there are more names than `names`. */
export async function walkedUsage(
  root: Descriptor,
  { enough, names }: { readonly enough: number; readonly names: number },
  signal: AbortSignal,
): Promise<TreeUsage | null> {
  const walk = new Walk(new UsageSum(enough), names, root, signal);
  return (await walk.through(root, 0)) ? walk.sum.usage() : null;
}

class Walk {
  readonly sum: UsageSum;
  readonly #maxNames: number;
  readonly #device: number;
  readonly #mount: string;
  readonly #signal: AbortSignal;

  constructor(sum: UsageSum, maxNames: number, root: Descriptor, signal: AbortSignal) {
    this.sum = sum;
    this.#maxNames = maxNames;
    this.#device = root.stat().dev;
    this.#mount = mountIdOf(root);
    this.#signal = signal;
  }

  /** False if there are too many names. */
  async through(folder: Descriptor, depth: number): Promise<boolean> {
    for (const name of this.#ifAllowed(() => fs.readdirSync(folder.path(), { encoding: "buffer" })) ?? []) {
      if (this.sum.isEnough) return true;
      if (this.sum.names >= this.#maxNames) return false;
      if (this.sum.names % SLICE === 0) await nextTurn();
      this.#signal.throwIfAborted();
      const stats = this.#ifAllowed(() => fs.lstatSync(folder.path(name), { throwIfNoEntry: false }));
      if (!stats) continue;
      this.sum.add(stats.blocks, stats.nlink > 1 && !stats.isDirectory() ? `${stats.dev}:${stats.ino}` : null);
      if (!stats.isDirectory()) continue;
      if (depth >= MAX_DEPTH) this.sum.leaveOut();
      else if (!(await this.#below(folder, name, { depth, isOther: stats.dev !== this.#device }))) return false;
    }
    return true;
  }

  /** Another device may be another mount, or a subvolume of the same file system, which any program can have made. */
  async #below(
    folder: Descriptor,
    name: Buffer,
    { depth, isOther }: { readonly depth: number; readonly isOther: boolean },
  ): Promise<boolean> {
    try {
      using inner = folder.child(name, true);
      if (isOther && mountIdOf(inner) !== this.#mount) return true;
      return await this.through(inner, depth + 1);
    } catch (error) {
      // It was removed or replaced meanwhile.
      if (!hasCode(error, "ENOENT", "ENOTDIR")) throw error;
      return true;
    }
  }

  /** Null if this user may not look there: the result is incomplete then. */
  #ifAllowed<Found>(look: () => Found): Found | null {
    try {
      return look();
    } catch (error) {
      if (!hasCode(error, "EACCES")) throw error;
      this.sum.leaveOut();
      return null;
    }
  }
}
