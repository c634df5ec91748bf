/**
 * One line of a manifest, or one file of a folder: what templates are filled with. Values of a CSV are text; those of a
 * line of JSON are any JSON.
 */
export interface ManifestItem {
  /** From 0, in the order of the manifest. */
  readonly index: number;
  readonly fields: Readonly<Record<string, unknown>>;
  /** Where it stands, for messages: `items.jsonl:12`, or the file itself. */
  readonly place: string;
}

/** One item as a run is asked for: its templates are filled. Plain JSON, for it is kept in the journal. */
export interface ItemRequest {
  readonly index: number;
  /** Unique in its fleet: what the item is called in results and reports. */
  readonly key: string;
  readonly place: string;
  /** JSON for the worker's standard input; absent: none. */
  readonly input?: unknown;
  /** Host paths or virtual paths, each with the name that it gets under `/attachments`. */
  readonly attachments: readonly { readonly path: string; readonly name: string }[];
  /** Virtual paths: what of the fleet's sandbox this item keeps; absent: all that it may read, or write. */
  readonly allowRead?: readonly string[];
  readonly allowWrite?: readonly string[];
  /** Why it is never run: no request could be made of what the manifest says of it. */
  readonly refusal?: string;
}

/** How an item's request is made of its fields. Text in braces is replaced: `/text/{stem}`. */
export interface ItemTemplate {
  readonly key?: string;
  /** `{path}` or `{path}=in.pdf`. */
  readonly attach: readonly string[];
  readonly allowRead?: readonly string[];
  readonly allowWrite?: readonly string[];
  /** JSON text with braces in its strings, or a JSON value in which every string is a template. */
  readonly input?: unknown;
}

/** How a cell serves items: `fresh`: one item and no more; `scrubbed`: many of one worker and fleet, one after another. */
export type Reuse = "fresh" | "scrubbed";

/** What a fleet is, whoever asked for it; kept in the journal, so that it can be resumed. Plain JSON. */
export interface FleetSpec {
  readonly version: 1;
  readonly worker: string;
  /** A policy in place of the project's; null: the project's. */
  readonly policy: string | null;
  readonly concurrency: number | "auto";
  readonly reuse: Reuse;
  /** For one item, in milliseconds; null: the worker's own limit. */
  readonly timeoutMs: number | null;
  /** Attempts besides the first, for what a retry may help where the worker itself failed. */
  readonly retries: number;
  /** More failed items than this end the fleet; null: none do. */
  readonly maxFailures: number | null;
  readonly cache: boolean;
  /** What the items were made of, for people: `--over inbox/*.pdf`. */
  readonly source: string;
}

/** What became of one item. `status` is a run's, or `cached` where an earlier success counts. */
export interface ItemResult {
  readonly index: number;
  readonly key: string;
  readonly status: string;
  /** Null where nothing ran. */
  readonly run: string | null;
  /** From 1; 0 where nothing ran. */
  readonly attempt: number;
  readonly exitCode: number | null;
  /** The worker's own output: parsed JSON or text; cut where it is long. */
  readonly output: unknown;
  readonly error: { readonly code: string; readonly message: string } | null;
  /** ISO 8601, UTC; null where nothing ran. */
  readonly startedAt: string | null;
  readonly endedAt: string;
  readonly durationMs: number;
  readonly memoryBytesPeak: number | null;
}

/** What `--failed` means, everywhere: it ran or was to run, and did not succeed. One that was cancelled was not let. */
export function isFailure(status: string): boolean {
  return !["succeeded", "cached", "cancelled"].includes(status);
}
