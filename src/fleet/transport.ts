import type { BlobStore } from "../blobs/model/blob.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import type { FleetJob } from "./items/item-job.ts";
import type { ItemRequest, ItemResult } from "./model/item.ts";
import type { Intent, Settlement } from "./model/queue.ts";
import type { Agreement, Delivered } from "./model/work.ts";
import type { OwnedQueue } from "./owned-queue.ts";

/** An attempt on a machine, with what is known of it. */
export interface EndedElsewhere {
  readonly delivered: Delivered;
  readonly request: ItemRequest;
  /** Checked, and without its changes. */
  readonly result: ItemResult;
  readonly streams: Settlement["streams"];
}

/** Its result with the outcome of its changes. `hasBegun`: files of the project were changed. */
export interface SettledElsewhere {
  readonly result: ItemResult;
  readonly hasBegun: boolean;
}

/**
 * Judges, decides on and applies what an attempt on a machine changed, and returns its result with that. Before the first effect it begins
 * the attempt in the queue; null: another attempt counts meanwhile, and nothing was changed.
 */
export type SettleChanges = (
  ended: EndedElsewhere,
  of: {
    readonly fleet: string;
    readonly job: FleetJob;
    /** Confirmed before what the attempt kept is touched: the next owner of the fleet works on the same. */
    readonly queue: Pick<OwnedQueue, "begin" | "confirm">;
    readonly signal: AbortSignal;
    /** Called when the attempt has begun: from then on its effects must be finished, whatever fails. */
    readonly onBegun: (intent: Intent) => void;
  },
) => Promise<SettledElsewhere | null>;

/** What a coordinator exchanges with machines besides the queue. */
export interface Transport {
  /** Of Corral. */
  readonly version: string;
  /** Where content is exchanged. */
  readonly blobs: BlobStore;
  /** Stores everything that the items of a fleet can read, for machines to copy. Rejects with an error for people if that is too much. */
  readonly sendTrees: (sandbox: Sandbox, signal: AbortSignal) => Promise<Agreement["trees"]>;
  readonly settleChanges: SettleChanges;
}
