import { availableParallelism, freemem } from "node:os";
import type { FleetSpec } from "./item.ts";

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

/**
 * How much runs at once. `auto`: what the processors can do, as far as the memory that each item may use allows, shared
 * with the other fleets of this machine.
 */
export function concurrencyFor(
  { concurrency, reuse }: Pick<FleetSpec, "concurrency" | "reuse">,
  memoryBytes: number,
  fleets: number,
): Concurrency {
  const cores = availableParallelism();
  const byMemory = Math.floor((freemem() * MEMORY_PART) / memoryBytes);
  // A fresh cell waits for the Engine much of its time, a scrubbed one for a processor.
  const byCores = reuse === "fresh" ? 2 * cores : cores + 1;
  const share = Math.floor(Math.min(byCores, byMemory, MAX_AUTO) / Math.max(1, fleets));
  const running = concurrency === "auto" ? Math.max(1, share) : concurrency;
  return { running, warm: reuse === "fresh" ? Math.min(MAX_WARM, running) : 0 };
}
