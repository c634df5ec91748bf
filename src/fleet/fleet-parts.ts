import type { FleetCache } from "./cache/fleet-cache.ts";
import type { OnFleetEvent } from "./events.ts";
import type { ItemExecutor } from "./executor.ts";
import type { FleetJob } from "./items/item-job.ts";
import type { FleetSpec } from "./model/item.ts";
import type { FleetQueue } from "./model/queue.ts";
import type { ApplyingItem, FleetStore } from "./model/store.ts";
import type { WorkStore } from "./model/work.ts";
import type { OwnedQueue } from "./owned-queue.ts";
import type { RunTroubles } from "./run-troubles.ts";
import type { MachineShare } from "./share.ts";
import type { SettleChanges } from "./transport.ts";

/** What a fleet needs to run. */
export interface FleetParts {
  readonly id: string;
  readonly spec: FleetSpec;
  readonly job: FleetJob;
  readonly store: FleetStore;
  /** Of the same fleet. */
  readonly queue: FleetQueue;
  /** Null: no earlier result is used, and no result counts for another fleet. */
  readonly cache: FleetCache | null;
  /** Items whose effects an earlier process had begun: they are finished first. */
  readonly applying?: readonly ApplyingItem[];
  readonly executor: ItemExecutor;
  readonly troubles: RunTroubles;
  readonly share: Pick<MachineShare, "concurrency" | "look">;
  /** Null: this process alone runs its items. */
  readonly elsewhere: Elsewhere | null;
  readonly onEvent: OnFleetEvent;
  /** Stops everything immediately. Items that were running run again on resume. */
  readonly stop: AbortSignal;
}

/** The same for its running: the queue says when another process owns the fleet, and everything is stopped then. */
export interface OwnedParts extends FleetParts {
  readonly queue: OwnedQueue;
}

/** What a fleet has whose items machines run too. */
export interface Elsewhere {
  readonly work: WorkStore;
  /** SHA-256 of what machines agree to. */
  readonly agreed: string;
  /** From now on machines may take items. */
  readonly offer: () => Promise<unknown>;
  readonly settleChanges: SettleChanges;
  /** Shorter if the signal is aborted. */
  readonly pause: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

/** What the parts of a running fleet share with its loop. */
export interface FleetLoop {
  /** Aborted if no further item may start; its reason is an error that says why. */
  readonly draining: AbortSignal;
  readonly drain: (why: string) => void;
  /** Aborted if another process owns the fleet: nothing of it may be changed here any more. */
  readonly lost: AbortSignal;
  /** Something has ended or may begin: the loop reads the queue again. */
  readonly wake: () => void;
}
