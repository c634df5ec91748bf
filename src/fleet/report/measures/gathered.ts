import { clipped, printable } from "../../../text/visible.ts";
import { causeOf, causeText, type ItemResult, type Reuse } from "../../model/item.ts";
import type { FleetSummary } from "../../running/events.ts";
import { DurationStatistics, TimeBins } from "./statistics.ts";

/** A coarse class of statuses; each has its own colour. */
export type OutcomeClass = "succeeded" | "cached" | "pending" | "failed" | "limited" | "refused" | "stopped";

/** In the order of drawing and listing. */
export const OUTCOMES: readonly { readonly outcome: OutcomeClass; readonly label: string }[] = [
  { outcome: "succeeded", label: "succeeded" },
  { outcome: "cached", label: "cached" },
  { outcome: "pending", label: "pending" },
  { outcome: "failed", label: "failed" },
  { outcome: "limited", label: "over a limit" },
  { outcome: "refused", label: "refused, denied or discarded" },
  { outcome: "stopped", label: "cancelled or lost" },
];

const OUTCOME_OF: ReadonlyMap<string, OutcomeClass> = new Map([
  ["succeeded", "succeeded"],
  ["cached", "cached"],
  ["pending", "pending"],
  ["applied", "succeeded"],
  ["partly_applied", "refused"],
  ["discarded", "refused"],
  ["failed", "failed"],
  ["signaled", "failed"],
  ["timed_out", "limited"],
  ["oom_killed", "limited"],
  ["output_limit", "limited"],
  ["disk_limit", "limited"],
  ["refused", "refused"],
  ["denied", "refused"],
  ["cancelled", "stopped"],
  ["lost", "stopped"],
]);

/** All statuses of items. */
export const STATUSES: readonly string[] = [...OUTCOME_OF.keys()];

/** An unknown status counts as a failure. */
export function outcomeOf(status: string): OutcomeClass {
  return OUTCOME_OF.get(status) ?? "failed";
}

/** Its changes wait for a person: neither a success nor a failure. */
export function isPendingStatus(status: string): boolean {
  return outcomeOf(status) === "pending";
}

/** A cached success counts as a success, and so do changes that a person applied. */
export function isSuccess(status: string): boolean {
  const outcome = outcomeOf(status);
  return outcome === "succeeded" || outcome === "cached";
}

/** With more cells, the timeline shows their number over time instead of each cell. */
const MAX_CELLS = 2_000;
/** Further failures are counted but not listed. */
export const MAX_FAILURES = 1_000;
const MAX_SLOWEST = 20;
/** Corral has fewer statuses and codes; further names are counted together. */
const MAX_NAMES = 100;
const DENSITY_BINS = 240;
const THROUGHPUT_BINS = 160;

/** One item's time span. Milliseconds since 1970. */
export interface ItemSpan {
  readonly key: string;
  readonly status: string;
  readonly outcome: OutcomeClass;
  readonly run: string | null;
  readonly startMs: number;
  readonly endMs: number;
}

export interface Reason {
  readonly code: string;
  readonly count: number;
  /** The last words of the first of these items. */
  readonly text: string;
  /** Its key. */
  readonly example: string;
}

/** Everything that a page shows of a fleet's results, in bounded memory. */
export interface Gathered {
  readonly done: number;
  readonly byStatus: ReadonlyMap<string, number>;
  readonly byOutcome: ReadonlyMap<OutcomeClass, number>;
  /** The most frequent first. */
  readonly reasons: readonly Reason[];
  /** Durations of items that ran. */
  readonly durations: DurationStatistics;
  readonly memoryBytesPeak: number | null;
  /** From the first start to the last end; null if no item has ended. */
  readonly span: { readonly fromMs: number; readonly toMs: number } | null;
  /** Every cell; null if there are too many. */
  readonly cells: readonly ItemSpan[] | null;
  /** Milliseconds of running cells, by outcome in the order of `OUTCOMES`. */
  readonly work: TimeBins;
  /** Ended items, by outcome. */
  readonly ended: TimeBins;
  /** The slowest first. */
  readonly slowest: readonly ReportItem[];
  readonly failed: number;
  /** The first of them. */
  readonly failures: readonly ReportItem[];
}

/** Iterates over a fleet's results once. */
export async function gather({ fleet, results }: ReportData): Promise<Gathered> {
  const gathering = new Gathering(fleet.items);
  for await (const item of results) gathering.add(item);
  return gathering.end();
}

class Gathering {
  #done = 0;
  #failed = 0;
  #memoryBytesPeak: number | null = null;
  #fromMs = Number.POSITIVE_INFINITY;
  #toMs = Number.NEGATIVE_INFINITY;
  #cells: ItemSpan[] | null = [];
  readonly #byStatus = new Map<string, number>();
  readonly #byOutcome = new Map<OutcomeClass, number>();
  /** By code and last words. */
  readonly #reasons = new Map<string, { -readonly [Key in keyof Reason]: Reason[Key] }>();
  readonly #durations = new DurationStatistics();
  readonly #work = new TimeBins(OUTCOMES.length, DENSITY_BINS);
  readonly #ended: TimeBins;
  readonly #slowest: ReportItem[] = [];
  readonly #failures: ReportItem[] = [];

  /** Few items make few bars, because a rate needs several items for each bar. */
  constructor(items: number) {
    this.#ended = new TimeBins(OUTCOMES.length, Math.min(THROUGHPUT_BINS, Math.max(4, Math.ceil(items / 4))));
  }

  add(item: ReportItem): void {
    const outcome = outcomeOf(item.status);
    this.#done += 1;
    addOne(this.#byStatus, bounded(this.#byStatus, item.status));
    addOne(this.#byOutcome, outcome);
    if (item.memoryBytesPeak !== null) {
      this.#memoryBytesPeak = Math.max(this.#memoryBytesPeak ?? 0, item.memoryBytesPeak);
    }
    this.#addTimes(item, outcome);
    if (!isSuccess(item.status) && !isPendingStatus(item.status)) this.#addFailure(item);
  }

  end(): Gathered {
    return {
      done: this.#done,
      byStatus: this.#byStatus,
      byOutcome: this.#byOutcome,
      reasons: [...this.#reasons.values()].sort((a, b) => b.count - a.count),
      durations: this.#durations,
      memoryBytesPeak: this.#memoryBytesPeak,
      span: this.#toMs >= this.#fromMs ? { fromMs: this.#fromMs, toMs: this.#toMs } : null,
      cells: this.#cells,
      work: this.#work,
      ended: this.#ended,
      slowest: this.#slowest,
      failed: this.#failed,
      failures: this.#failures,
    };
  }

  #addTimes(item: ReportItem, outcome: OutcomeClass): void {
    const series = OUTCOMES.findIndex((candidate) => candidate.outcome === outcome);
    const endMs = Date.parse(item.endedAt);
    if (Number.isNaN(endMs)) return;
    const started = item.startedAt === null ? Number.NaN : Date.parse(item.startedAt);
    // If the clock was set back, an end can be before its start.
    const startMs = Math.min(started, endMs);
    this.#fromMs = Math.min(this.#fromMs, Number.isNaN(startMs) ? endMs : startMs);
    this.#toMs = Math.max(this.#toMs, endMs);
    this.#ended.reach(this.#fromMs, this.#toMs);
    this.#ended.addAt(series, endMs);
    if (Number.isNaN(startMs)) return;
    this.#durations.add(item.durationMs);
    this.#work.addSpan(series, startMs, endMs);
    this.#addSlow(item);
    const { status, run } = item;
    this.#cells?.push({ key: clipped(item.key, LONGEST.key), status, outcome, run, startMs, endMs });
    if (this.#cells !== null && this.#cells.length > MAX_CELLS) this.#cells = null;
  }

  #addSlow(item: ReportItem): void {
    const slowest = this.#slowest;
    if (slowest.length === MAX_SLOWEST && item.durationMs <= (slowest.at(-1)?.durationMs ?? 0)) return;
    const at = slowest.findIndex(({ durationMs }) => durationMs < item.durationMs);
    slowest.splice(at === -1 ? slowest.length : at, 0, kept(item));
    slowest.length = Math.min(slowest.length, MAX_SLOWEST);
  }

  #addFailure(item: ReportItem): void {
    this.#failed += 1;
    const code = clipped(item.error?.code ?? item.status, LONGEST.word);
    const group = bounded(this.#reasons, `${code} ${causeOf(item) ?? ""}`, LONGEST.message);
    const reason = this.#reasons.get(group);
    if (reason === undefined) {
      const text = clipped(causeText(item), LONGEST.message);
      const isOthers = group === OTHERS;
      this.#reasons.set(group, {
        code: isOthers ? OTHERS : code,
        count: 1,
        text: isOthers ? "" : text,
        example: clipped(item.key, LONGEST.key),
      });
    } else reason.count += 1;
    if (this.#failures.length < MAX_FAILURES) this.#failures.push(kept(item));
  }
}

/** Only the fields that are shown, without the output and the item's own, which may be large. */
function kept({ output: _, key, error, ...rest }: ReportItem & { readonly output?: unknown }): ReportItem {
  const shown = { ...rest, fields: {} };
  const short = error && { code: error.code, message: clipped(error.message, LONGEST.message) };
  return { ...shown, key: clipped(key, LONGEST.key), error: short };
}

function addOne<Key>(counts: Map<Key, number>, key: Key): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

const OTHERS = "others";

/** The name, or `others` if there are too many names. */
function bounded(seen: ReadonlyMap<string, unknown>, name: string, longest: number = LONGEST.word): string {
  const short = clipped(name, longest);
  return seen.has(short) || seen.size < MAX_NAMES ? short : OTHERS;
}

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
  readonly items: number;
}

/** One done item without its output; an `ItemResult` fits. */
export type ReportItem = Omit<ItemResult, "output">;

/** The most characters that a page shows of texts from a worker or a manifest. */
export const LONGEST = { key: 200, message: 500, word: 80 } as const;

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/**
 * Text for a page, as element content or in a quoted attribute: markup is escaped, control and formatting characters (which
 * could reverse the reading order) become their codes, and long text is cut.
 */
export function escaped(text: string, max: number = LONGEST.message): string {
  const shown = printable(clipped(text, max).replace(/\r\n?|\n/g, " "), "", "piece");
  return shown.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? "");
}

/** The begin of a self-contained page, which runs no script and loads nothing. `title`: escaped. */
export function pageStart(title: string, style: string): string {
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<style>${style}</style>
</head>
<body>
`;
}

const MAX_TEXT = 2000;

const STYLE = `
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 5px 12px 5px 0; border-bottom: 1px solid #8884; overflow-wrap: anywhere; }
td:nth-child(2) { white-space: nowrap; }
.done { color: #18794e; } .not { color: #ad5700; } .refused { color: #c62a2f; }
@media (prefers-color-scheme: dark) { .done { color: #4cc38a; } .not { color: #f1a10d; } .refused { color: #ff6369; } }
`;

/** The begin of a self-contained page without scripts, up to the rows of its table. All texts are escaped here; those of rows are not. */
export function reportPageStart(title: string, paragraphs: readonly string[], heads: readonly string[]): string {
  const shown = escaped(title, MAX_TEXT);
  return `${pageStart(shown, STYLE)}<h1>${shown}</h1>
${paragraphs.map((text) => `<p>${escaped(text, MAX_TEXT)}</p>\n`).join("")}${tableStart(heads)}`;
}

export function tableStart(heads: readonly string[]): string {
  const cells = heads.map((head) => `<th>${escaped(head, MAX_TEXT)}</th>`).join("");
  return `<table>\n<thead><tr>${cells}</tr></thead>\n<tbody>\n`;
}

export const TABLE_END = "</tbody>\n</table>\n";
export const REPORT_PAGE_END = "</body>\n</html>\n";
