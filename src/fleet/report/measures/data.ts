import type { FleetSummary } from "../../events.ts";
import type { ItemResult, Reuse } from "../../model/item.ts";

/** What a report is made of. */
export interface ReportData {
  readonly fleet: ReportFleet;
  /** Every item that is done, once each, in any order. It is walked once, and never held as a whole. */
  readonly results: AsyncIterable<ReportItem> | Iterable<ReportItem>;
  /** When the report was asked for. ISO 8601, UTC. */
  readonly madeAt: string;
}

/** The fleet itself, as the journal has it. Times are ISO 8601, UTC. */
export interface ReportFleet {
  readonly id: string;
  readonly worker: string;
  /** What the items were made of, for people. */
  readonly source: string;
  readonly policy: string | null;
  readonly reuse: Reuse;
  readonly concurrency: number | "auto";
  readonly state: FleetSummary["state"] | "loading";
  /** Why it is not done; null where it is, or still runs. */
  readonly why: string | null;
  readonly createdAt: string;
  /** Null while it goes on. */
  readonly endedAt: string | null;
  /** All of them, done or not. */
  readonly items: number;
}

/** One item that is done, without what its worker printed: an `ItemResult` will do. */
export type ReportItem = Pick<
  ItemResult,
  | "index"
  | "key"
  | "status"
  | "run"
  | "attempt"
  | "exitCode"
  | "error"
  | "startedAt"
  | "endedAt"
  | "durationMs"
  | "memoryBytesPeak"
>;
