import type { FleetSummary } from "../../events.ts";
import type { ItemResult, Reuse } from "../../model/item.ts";

/** The input of a report. */
export interface ReportData {
  readonly fleet: ReportFleet;
  /** Every done item once, in any order. It is iterated once and never held in memory as a whole. */
  readonly results: AsyncIterable<ReportItem> | Iterable<ReportItem>;
  /** When the report was created. ISO 8601, UTC. */
  readonly madeAt: string;
}

/** The fleet as in the journal. Times are ISO 8601, UTC. */
export interface ReportFleet {
  readonly id: string;
  readonly worker: string;
  /** The source of the items, for people. */
  readonly source: string;
  readonly policy: string | null;
  readonly reuse: Reuse;
  readonly concurrency: number | "auto";
  readonly state: FleetSummary["state"] | "loading";
  /** Why it is not done; null if it is done or still runs. */
  readonly why: string | null;
  readonly createdAt: string;
  /** Null while it runs. */
  readonly endedAt: string | null;
  /** The number of all items. */
  readonly items: number;
}

/** One done item without its output; an `ItemResult` fits. */
export type ReportItem = Omit<ItemResult, "output">;
