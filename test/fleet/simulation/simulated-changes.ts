import type { SettleChanges } from "../../../src/fleet/running/fleet-parts.ts";
import {
  type KeptChangesets,
  type NotBegun,
  UnfinishedChanges,
  unstartedResult,
} from "../../../src/run/model/result.ts";
import type { VirtualProcess, VirtualWorld } from "./virtual-world.ts";

/** What one attempt changes. */
export interface Effect {
  readonly fleet: string;
  readonly index: number;
  readonly attempt: number;
  readonly run: string;
}

const STEP_MS = 20;
/** How long a process waits for another one that applies the same. */
const LOOK_MS = 100;
const MAX_LOOKS = 300;

/** The directory in which changes wait, which the coordinators of a project share: it outlives them. Each is locked by one process. */
export class SimulatedChanges {
  readonly #kept = new Map<string, Effect>();
  readonly #locks = new Map<string, VirtualProcess>();
  readonly #world: VirtualWorld;
  readonly #effects: Effect[];
  readonly #stops = new Map<VirtualProcess, { steps: number; readonly onStopped: () => void }>();

  /** `effects`: gets what is applied. */
  constructor(world: VirtualWorld, effects: Effect[]) {
    this.#world = world;
    this.#effects = effects;
  }

  /** Stops a process, as by SIGSTOP, in so many of its steps. */
  stopAt(process: VirtualProcess, steps: number, onStopped: () => void): void {
    this.#stops.set(process, { steps, onStopped });
  }

  /** As `settlingDelivered` does it: kept, begun in the queue, applied. A process may die or be stopped between each two. */
  readonly settle: SettleChanges = async ({ delivered, result }, { fleet, queue }) => {
    const { run, index, attempt } = delivered;
    if (result.status !== "succeeded") return { result, hasBegun: false };
    await queue.confirm();
    await this.port.drop(run, "");
    await this.#step();
    await queue.confirm();
    this.#kept.set(run, { fleet, index, attempt, run });
    await this.#step();
    const begun = await queue.begin(index, attempt, { result, cacheKey: null, streams: null });
    if (!begun.ok) {
      if (!(begun.code === "taken" && begun.isInherited)) await this.port.drop(run, "");
      return null;
    }
    await this.#step();
    const isApplied = await this.#apply(run);
    // Another process has finished it: what this one believes may not be recorded.
    return { result: isApplied ? result : { ...result, status: "denied" }, hasBegun: true };
  };

  /** Of the coordinator's own items. */
  async own(effect: Effect, begin: () => Promise<NotBegun | null>): Promise<void> {
    this.#kept.set(effect.run, effect);
    await this.#step();
    const refused = await begin();
    if (refused !== null) return refused.isInherited ? undefined : await this.port.drop(effect.run, "");
    await this.#step();
    await this.#apply(effect.run);
  }

  readonly port: KeptChangesets = {
    drop: async (run) => {
      if (!this.#isLocked(run)) this.#kept.delete(run);
    },
    withdraw: async (runs) => {
      for (const run of runs) if (!this.#isLocked(run)) this.#kept.delete(run);
    },
    finish: async (run) => {
      for (let look = 0; this.#isLocked(run); look += 1) {
        if (look >= MAX_LOOKS) throw new UnfinishedChanges("another process is working on it");
        await this.#world.pause(LOOK_MS);
      }
      await this.#apply(run);
      return null;
    },
    forget: async () => {},
    keep: async () => {
      throw new Error("the simulation keeps no changes that wait for a person");
    },
    apply: async () => {
      throw new Error("the simulation applies what it keeps");
    },
  };

  /** The log of applications lets it happen once. False: another process does it, or has done it. */
  async #apply(run: string): Promise<boolean> {
    const process = this.#world.current;
    const kept = this.#kept.get(run);
    if (process === undefined || kept === undefined || this.#isLocked(run)) return false;
    this.#locks.set(run, process);
    await this.#step();
    this.#kept.delete(run);
    this.#effects.push(kept);
    this.#locks.delete(run);
    return true;
  }

  /** A stopped process keeps its locks. */
  #isLocked(run: string): boolean {
    const by = this.#locks.get(run);
    return by !== undefined && by.state !== "dead";
  }

  async #step(): Promise<void> {
    const process = this.#world.current;
    const stop = process && this.#stops.get(process);
    if (process !== undefined && stop !== undefined) {
      stop.steps -= 1;
      if (stop.steps < 0) {
        this.#stops.delete(process);
        if (process.state === "running") process.state = "stopped";
        stop.onStopped();
      }
    }
    await this.#world.pause(STEP_MS);
  }
}

/** A run of an item here that ended so. */
export function simulatedRun(run: string, status: "succeeded" | "failed" | "lost") {
  const ended = unstartedResult({ run, worker: "w" }, status, { code: "WORKER_FAILED", message: "no" });
  return status === "succeeded" ? { ...ended, error: null } : ended;
}
