import type { Enforcement } from "../plan/enforcement.ts";

/** A running isolated environment. Disposing removes every trace of it, whatever state it is in. */
export interface Cell extends AsyncDisposable {
  readonly id: string;
  readonly enforcement: Enforcement;
  /** Lets the worker begin, with `input` as the whole of its standard input. Once. */
  release(input: Uint8Array): void;
  /** Settles once, when the cell has ended and all of its output was delivered. Never rejects. */
  readonly exit: Promise<CellExit>;
  /** What its processes hold open of files that have no name any more, in bytes; null where that cannot be seen. */
  unnamedBytes(): Promise<number | null>;
  /** Asks (`SIGTERM`, the worker alone) or ends (`SIGKILL`, every process, wherever it hides). No error where it has ended already. */
  kill(signal: "SIGTERM" | "SIGKILL"): Promise<void>;
}

export type CellExit =
  | { readonly kind: "exited"; readonly code: number; readonly outOfMemory: boolean; readonly usage: CellUsage }
  /** The engine did not tell how the worker ended. */
  | { readonly kind: "lost"; readonly reason: string };

/** As last measured while the worker ran; null where it ended before the first measurement. */
export interface CellUsage {
  readonly cpuMs: number | null;
  readonly memoryBytesPeak: number | null;
}

/** A cell that runs its command once for each item, and is scrubbed in between. */
export interface ServingCell extends Cell {
  /** Runs the command for one item; one at a time. What it reads and prints stands in files that Corral made before. */
  serve(id: string): Promise<ServedItem>;
}

export type ServedItem =
  /** `code` as the Engine would tell it: 128 + n for a death by signal n. The cell is clean, and serves the next. */
  | { readonly kind: "ended"; readonly code: number; readonly outOfMemory: boolean }
  /** The same of the command; the cell could not be cleaned after it, and has ended with whatever was in it. `what` was left. */
  | { readonly kind: "dirty"; readonly code: number; readonly outOfMemory: boolean; readonly what: string }
  /** The cell ended in the middle, by itself or because it was killed; its exit says how. */
  | { readonly kind: "gone" };
