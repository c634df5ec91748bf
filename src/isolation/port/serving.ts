import type { Cell } from "./cell.ts";

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
