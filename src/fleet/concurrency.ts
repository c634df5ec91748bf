import { availableParallelism, freemem } from "node:os";
import type { FleetSpec, Reuse } from "./model/item.ts";

export interface Concurrency {
  /** Items whose workers run at once. */
  readonly running: number;
  /** Cells that stand ready at the gate besides. */
  readonly warm: number;
}

/** What is left for everything else on the machine. */
const MEMORY_PART = 0.7;
const MAX_AUTO = 64;
const MAX_WARM = 4;

/** How many items may run at once where no other fleet does: what the processors can do, as far as the memory that each may use allows. */
export function capacityOf(reuse: Reuse, memoryBytes: number): number {
  const cores = availableParallelism();
  const byMemory = Math.floor((freemem() * MEMORY_PART) / memoryBytes);
  // A fresh cell waits for the Engine much of its time, a scrubbed one for a processor.
  const byCores = reuse === "fresh" ? 2 * cores : cores + 1;
  return Math.min(byCores, byMemory, MAX_AUTO);
}

/** How much of that a fleet uses beside others: `auto` takes an equal part, a number is taken as it is. */
export function concurrencyBeside(
  { concurrency, reuse }: Pick<FleetSpec, "concurrency" | "reuse">,
  capacity: number,
  fleets: number,
): Concurrency {
  const running = concurrency === "auto" ? Math.max(1, Math.floor(capacity / Math.max(1, fleets))) : concurrency;
  return { running, warm: reuse === "fresh" ? Math.min(MAX_WARM, running) : 0 };
}
