import { dirname } from "node:path";
import { announceFleet, countLiveFleets } from "../state/live-fleets.ts";
import { currentOwner, type Owner } from "../state/owner.ts";
import { type Concurrency, capacityOf, concurrencyBeside } from "./concurrency.ts";
import type { FleetSpec } from "./model/item.ts";

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
