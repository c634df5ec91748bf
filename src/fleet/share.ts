import { availableParallelism, freemem } from "node:os";
import { dirname } from "node:path";
import { announceFleet, countLiveFleets } from "../state/live-dir.ts";
import { currentOwner, type Owner } from "../state/owner.ts";
import type { FleetSpec, Reuse } from "./model/item.ts";

/**
 * A fleet's share of the machine. All fleets under one state directory have equal shares, whichever project and process they
 * belong to; a share changes when other fleets start or end.
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

  /** `memoryBytes`: the limit of each item. Disposing returns the share to the other fleets. */
  static async take(id: string, spec: FleetSpec, ownerDir: string, memoryBytes: number): Promise<MachineShare> {
    const announced = await announceFleet(ownerDir, id);
    const share = new MachineShare(spec, dirname(ownerDir), memoryBytes, announced);
    await share.look();
    return share;
  }

  /** As of the last `look`. */
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
  /** Items that run at the same time. */
  readonly running: number;
  /** Additional cells that are prepared and wait at the gate. */
  readonly warm: number;
}

/** The part of the free memory that fleets may use; the rest is for other programs. */
const MEMORY_PART = 0.7;
const MAX_AUTO = 64;
const MAX_WARM = 4;

/** How many items one fleet alone may run at once, by processors and free memory. */
export function capacityOf(reuse: Reuse, memoryBytes: number): number {
  const cores = availableParallelism();
  const byMemory = Math.floor((freemem() * MEMORY_PART) / memoryBytes);
  // A fresh cell mostly waits for the Engine, a scrubbed one for a processor.
  const byCores = reuse === "fresh" ? 2 * cores : cores + 1;
  return Math.min(byCores, byMemory, MAX_AUTO);
}

/** How many items a fleet runs beside others: `auto` takes an equal share, a number is used as it is. */
export function concurrencyBeside(
  { concurrency, reuse }: Pick<FleetSpec, "concurrency" | "reuse">,
  capacity: number,
  fleets: number,
): Concurrency {
  const running = concurrency === "auto" ? Math.max(1, Math.floor(capacity / Math.max(1, fleets))) : concurrency;
  return { running, warm: reuse === "fresh" ? Math.min(MAX_WARM, running) : 0 };
}
