import { posix } from "node:path";
import type { Blob } from "../../blobs/blob.ts";
import type { MachineNeeds } from "../../declarations/fleet-yaml.ts";

/** Failed items whose last words are the same, apart from numbers and the items' names. */
export interface FailureGroup {
  readonly count: number;
  readonly status: string;
  readonly code: string;
  /** The last line of standard error, or else the error's message, of one of them. */
  readonly text: string;
  /** The key of that one. */
  readonly example: string;
}

const MAX_CAUSE_CHARS = 200;
/** A shorter name may be a word of the message. */
const MIN_STEM_CHARS = 3;

type Failure = Pick<ItemResult, "key" | "status" | "error" | "stderrLine">;

/** Why an item failed, in one line as the worker or Corral wrote it. */
export function causeText({ status, error, stderrLine }: Omit<Failure, "key">): string {
  return stderrLine !== null && HAS_LAST_WORDS.has(status) ? stderrLine : (error?.message ?? status);
}

/** The same for failures that differ only in numbers and the item's name; null if the item did not fail. */
export function causeOf(failure: Failure): string | null {
  if (!isFailure(failure.status)) return null;
  let text = causeText(failure).slice(0, 4 * MAX_CAUSE_CHARS);
  for (const name of namesOf(failure.key)) text = text.replaceAll(name, "<item>");
  return text
    .replaceAll(QUOTED, "$1<…>$1")
    .replaceAll(PATH, "$1<path>")
    .replaceAll(/\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b/gi, "N")
    .replaceAll(/\d+/g, "N")
    .replaceAll(/\s+/g, " ")
    .trim()
    .slice(0, MAX_CAUSE_CHARS)
    .toWellFormed();
}

/** What differs from item to item is mostly a name that the worker chose. An apostrophe within a word begins none. */
const QUOTED = /(?<![\w])(["'`])(?:(?!\1).){1,300}\1(?!\w)/g;
const PATH = /(^|[\s(=:])\.{0,2}\/[^\s:,;)"'`<]+/g;

/** For these statuses standard error may say why. */
export const HAS_LAST_WORDS: ReadonlySet<string> = new Set([
  "failed",
  "signaled",
  "timed_out",
  "oom_killed",
  "disk_limit",
  "output_limit",
]);

/** The longest first. */
function namesOf(key: string): string[] {
  const name = posix.basename(key);
  const stem = posix.basename(name, posix.extname(name));
  const dir = posix.dirname(key);
  const long = [key, name, stem, dir].filter((each) => each.length >= MIN_STEM_CHARS);
  return [...new Set(long)].toSorted((a, b) => b.length - a.length);
}

/**
 * One line of a manifest or one file of a directory, which fills the templates. Values of a CSV are text; values of a JSON
 * line are any JSON.
 */
export interface ManifestItem {
  /** From 0, in the order of the manifest. */
  readonly index: number;
  readonly fields: Readonly<Record<string, unknown>>;
  /** Where it comes from, for messages: `items.jsonl:12`, or the file itself. */
  readonly place: string;
  /** As it was given, without the fields that are derived from its path. */
  readonly record: Readonly<Record<string, unknown>>;
  /** The file of the host that it is; absent: it is a record. */
  readonly file?: string;
  /** Why no request can be made of it, whatever the template says. */
  readonly refusal?: string;
  /** SHA-256 of the file's content or of the record, in hexadecimal, or why there is none. Absent: no template uses it. */
  readonly hash?: { readonly ok: true; readonly value: string } | { readonly ok: false; readonly fault: string };
}

/** Of the attachments of one item that machines may run. */
export const ATTACHED_LIMITS = { files: 1000, bytes: 4 * 1024 ** 3 } as const;

export interface ItemAttachment {
  /** A host path or a virtual path, on the machine of the fleet's owner. */
  readonly path: string;
  readonly name: string;
  /** Its content when the fleet was loaded, which machines fetch. Absent: only the fleet's owner runs the item. */
  readonly sent?: Blob;
}

/** The request for one item's run, with all templates filled. Plain JSON, kept in the journal. */
export interface ItemRequest {
  readonly index: number;
  /** Unique in its fleet; names the item in results and reports. */
  readonly key: string;
  readonly place: string;
  /** JSON for the worker's standard input; absent: none. */
  readonly input?: unknown;
  /** Files, each with its name under `/attachments`. */
  readonly attachments: readonly ItemAttachment[];
  /** Virtual paths of the fleet's sandbox that this item may read or write; absent: all. */
  readonly allowRead?: readonly string[];
  readonly allowWrite?: readonly string[];
  /** The fields that the item had itself, for exports: long ones are left out. */
  readonly fields?: Readonly<Record<string, unknown>>;
  /** Why the item never runs: its manifest entry makes no valid request. */
  readonly refusal?: string;
}

/** How an item's fields make its request. Text in braces is replaced: `/text/{stem}`. */
export interface ItemTemplate {
  readonly key?: string;
  /** `{path}` or `{path}=in.pdf`; absent: none. */
  readonly attach?: readonly string[];
  readonly allowRead?: readonly string[];
  readonly allowWrite?: readonly string[];
  /** JSON text with braces in its strings, or a JSON value in which every string is a template. */
  readonly input?: unknown;
}

/** How cells serve items. `fresh`: one item for each cell; `scrubbed`: a cell runs many items, one after another. */
export type Reuse = "fresh" | "scrubbed";

/** The declaration of a fleet. Plain JSON, kept in the journal so that the fleet can be resumed. */
export interface FleetSpec {
  readonly version: 1;
  readonly worker: string;
  /** A policy in place of the project's; null: the project's. */
  readonly policy: string | null;
  readonly concurrency: number | "auto";
  readonly reuse: Reuse;
  /** Time limit of one item in milliseconds; null: the worker's own limit. */
  readonly timeoutMs: number | null;
  /** Further attempts after the first, for failures of the worker that a retry may fix. */
  readonly retries: number;
  /** The fleet is drained if more items fail; null: no limit. */
  readonly maxFailures: number | null;
  readonly cache: boolean;
  /** The source of the items, for people: `--over inbox/*.pdf`. */
  readonly source: string;
  /** Which machines may run its items; null or absent: only the process that owns it does. */
  readonly machines?: MachineNeeds | null;
}

/**
 * The result of one item. `status` is a run's; `cached` if an earlier success counts; `pending` if the worker succeeded and changes
 * wait for consent, and after a person's decision `applied`, `partly_applied` or `discarded`.
 */
export interface ItemResult {
  readonly index: number;
  readonly key: string;
  readonly status: string;
  /** Null if nothing ran. */
  readonly run: string | null;
  /** From 1; 0 if nothing ran. */
  readonly attempt: number;
  readonly exitCode: number | null;
  /** The worker's output: parsed JSON or text; long output is cut. */
  readonly output: unknown;
  readonly error: { readonly code: string; readonly message: string } | null;
  /** The last line of its standard error that is not empty; null if there is none. */
  readonly stderrLine: string | null;
  /** The item's own fields: those of its line, or `path`. Long ones are left out. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** ISO 8601, UTC; null if nothing ran. */
  readonly startedAt: string | null;
  readonly endedAt: string;
  readonly durationMs: number;
  readonly memoryBytesPeak: number | null;
  /** Its changes to staged mounts; absent if there were none. */
  readonly changeset?: ItemChangeset;
  /** The name of the machine that ran it, as that calls itself; absent: the process that owns the fleet ran it, or nothing did. */
  readonly machine?: string;
}

export interface ItemChangeset {
  /** Its id for `corral changes`; null if nothing waits there. */
  readonly id: string | null;
  /** How many changes have which outcome; `discarded` only after a person's decision. */
  readonly counts: Readonly<Record<string, number>>;
}

/** Changes of the item wait for a person, or a person has decided on them. */
export const REVIEWED = ["pending", "applied", "partly_applied", "discarded"] as const;

const NO_FAILURES: ReadonlySet<string> = new Set(["succeeded", "cached", "cancelled", ...REVIEWED]);

/** The meaning of `--failed` everywhere: the item did not succeed, was not cancelled, and does not wait for a person. */
export function isFailure(status: string): boolean {
  return !NO_FAILURES.has(status);
}

/** What an item printed, as text. Long streams have their beginning and their end. */
export interface ItemStreams {
  readonly stdout: string;
  readonly stderr: string;
}

/** One item with everything that the store has of it. */
export interface StoredItem {
  readonly state: "queued" | "running" | "done";
  readonly request: ItemRequest;
  /** Null if no attempt has ended. While it is retried, that of the earlier attempt. */
  readonly result: ItemResult | null;
  readonly streams: ItemStreams;
  /** The machine that runs it, or that ran its last attempt; null: the process that owns the fleet, or none. */
  readonly machine: string | null;
  /** Results before the item was retried in place, without outputs; the newest first. */
  readonly attempts: readonly EarlierAttempt[];
}

/** A result that a retry replaced. */
export type EarlierAttempt = Pick<
  ItemResult,
  | "attempt"
  | "status"
  | "run"
  | "machine"
  | "exitCode"
  | "error"
  | "stderrLine"
  | "startedAt"
  | "endedAt"
  | "durationMs"
>;

/** One item of a list: what it is and how it ended, without what it printed. */
export interface ListedItem {
  readonly index: number;
  readonly key: string;
  readonly state: StoredItem["state"];
  /** Of the last attempt that ended; null if none has. */
  readonly status: string | null;
  readonly code: string | null;
  /** Claims of it, the present one included. */
  readonly attempt: number;
  readonly run: string | null;
  /** As in {@link StoredItem}. */
  readonly machine: string | null;
  /** ISO 8601. */
  readonly endedAt: string | null;
  readonly durationMs: number | null;
}

/** Which items are listed. What is absent does not filter. */
export interface ItemFilter {
  readonly state?: StoredItem["state"] | undefined;
  readonly status?: string | undefined;
  /** A part of the key. */
  readonly search?: string | undefined;
  /** Only failed ones. */
  readonly failed?: boolean | undefined;
  /** Only those of the group of failures in which the item with this key is. */
  readonly alike?: string | undefined;
}

/** What one item printed. */
export interface ItemLog extends ItemStreams, Pick<ItemResult, "key" | "status" | "exitCode"> {}

/** An item whose changes wait. */
export interface PendingItem {
  readonly index: number;
  readonly key: string;
  readonly run: string;
}

/** A person's decisions on all changes of an item that was `pending`. */
export interface Reviewed {
  readonly fleet: string;
  /** The item's index. */
  readonly item: number;
  /** The run that made the changes: an item that ran again meanwhile is not meant. */
  readonly run: string;
  /** How many of its changes have which outcome now. */
  readonly counts: Readonly<Record<string, number>>;
}
