import { availableParallelism, freemem } from "node:os";
import { dirname } from "node:path";
import { announceFleet, countLiveFleets } from "../state/live-dir.ts";
import { currentOwner, type Owner } from "../state/owner.ts";
import type { FleetSpec, Reuse } from "./model/item.ts";

/**
 * A fleet's part of the machine, which all fleets under one state directory have in equal parts, whichever project and
 * process they belong to. It grows and shrinks as others end and begin.
 */
export class MachineShare implements AsyncDisposable {
  readonly #spec: FleetSpec;
  readonly #liveDir: string;
  readonly #self: Owner = currentOwner();
  readonly #capacity: number;
  readonly #announced: AsyncDisposable;
  #concurrency: Concurrency;

  private constructor(spec: FleetSpec, liveDir: string, memoryBytes: number, announced: AsyncDisposable) {
    this.#spec = spec;
    this.#liveDir = liveDir;
    this.#capacity = capacityOf(spec.reuse, memoryBytes);
    this.#announced = announced;
    this.#concurrency = concurrencyBeside(spec, this.#capacity, 1);
  }

  /** `memoryBytes`: what each item may use. Disposing gives the part to the others. */
  static async take(id: string, spec: FleetSpec, ownerDir: string, memoryBytes: number): Promise<MachineShare> {
    const announced = await announceFleet(ownerDir, id);
    const share = new MachineShare(spec, dirname(ownerDir), memoryBytes, announced);
    await share.look();
    return share;
  }

  /** As of the last look. */
  get concurrency(): Concurrency {
    return this.#concurrency;
  }

  async look(): Promise<Concurrency> {
    const fleets = await countLiveFleets(this.#liveDir, this.#self);
    this.#concurrency = concurrencyBeside(this.#spec, this.#capacity, fleets);
    return this.#concurrency;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#announced[Symbol.asyncDispose]();
  }
}

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
