import { Descriptor } from "../../files/host/descriptor.ts";
import { treeUsage } from "../../isolation/disk/tree-usage.ts";
import type { Machine } from "../machine.ts";

/** How much of one kind there is. */
export interface Measured {
  /** On the disk. */
  readonly bytes: number;
  /** Of what the kind is counted in. */
  readonly count: number;
  /** False: there is more, because it could not be read, or not in time. */
  readonly complete: boolean;
}

/** One thing that `gc` removed or would remove. */
export interface Removed {
  /** Its id or its name. */
  readonly what: string;
  /** Null if it is not known what it frees. */
  readonly bytes: number | null;
  readonly why: string;
}

export interface CollectOptions {
  /** In milliseconds; null: each kind has its own age. */
  readonly olderThanMs: number | null;
  /** Removes nothing. */
  readonly dryRun: boolean;
  readonly nowMs: number;
}

/** One kind of what Corral keeps. A further kind is a further entry of the table in `stored-kinds.ts`. */
export interface StoredKind {
  /** As `du` and `gc` name it. */
  readonly name: string;
  /** What it is counted in. */
  readonly unit: string;
  /** What `gc` removes of it, and what removes the rest. */
  readonly rule: string;
  /** Rejects if it cannot be known now, for example without an Engine. */
  measure(machine: Machine, signal: AbortSignal): Promise<Measured>;
  /** How many there are that `gc` never removes; absent: none. */
  staying?(machine: Machine): Promise<number>;
  /** Removes what may go, also while other processes run. */
  collect(machine: Machine, options: CollectOptions): Promise<readonly Removed[]>;
}

/** For kinds of which `gc` removes nothing. */
export const nothing = async (): Promise<readonly Removed[]> => [];

const ENOUGH = Number.POSITIVE_INFINITY;

/** Without following links or entering mounts. A path that does not exist has nothing. */
export async function measured(paths: readonly string[], signal: AbortSignal): Promise<Omit<Measured, "count">> {
  let [bytes, complete] = [0, true];
  for (const path of paths) {
    try {
      using root = Descriptor.name(path);
      const stats = root.stat();
      if (!stats.isDirectory()) {
        bytes += stats.blocks * 512;
        continue;
      }
      const usage = await treeUsage(root, ENOUGH, signal);
      bytes += usage.bytes;
      complete &&= usage.complete;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "ENOENT") complete = false;
      if (signal.aborted) break;
    }
  }
  return { bytes, complete };
}
