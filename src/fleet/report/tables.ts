import type { ReportItem } from "./measures/data.ts";
import { escaped, LONGEST } from "./measures/escaped.ts";
import type { Reason } from "./measures/gathered.ts";
import { outcomeOf } from "./measures/outcome.ts";
import { countText, durationText, roughBytesText } from "./measures/quantity.ts";

interface Column<Row> {
  readonly head: string;
  readonly kind: "number" | "key" | "status" | "message" | "";
  /** Returns escaped HTML. */
  readonly cell: (row: Row) => string;
}

/** Yields row by row, so that the page is never in memory as a whole. `label` names the table for screen readers. */
function* table<Row>(label: string, columns: readonly Column<Row>[], rows: Iterable<Row>): Generator<string> {
  // A scrollable region needs a tab stop for keyboard users.
  yield `<div class="wide" role="region" aria-label="${label}" tabindex="0"><table aria-label="${label}">\n<thead><tr>`;
  for (const { head, kind } of columns) yield `<th scope="col"${classOf(kind)}>${head}</th>`;
  yield "</tr></thead>\n<tbody>\n";
  for (const row of rows) {
    yield `<tr>${columns.map(({ kind, cell }) => `<td${classOf(kind)}>${cell(row)}</td>`).join("")}</tr>\n`;
  }
  yield "</tbody>\n</table></div>\n";
}

function classOf(kind: string): string {
  return kind === "" ? "" : ` class="${kind}"`;
}

export function reasonsTable(reasons: readonly Reason[]): Iterable<string> {
  return table("Reasons", REASON_COLUMNS, reasons);
}

export function slowestTable(items: readonly ReportItem[]): Iterable<string> {
  return table("The slowest items", SLOWEST_COLUMNS, items);
}

export function failuresTable(items: readonly ReportItem[]): Iterable<string> {
  return table("Failures", FAILURE_COLUMNS, items);
}

const REASON_COLUMNS: readonly Column<Reason>[] = [
  { head: "Items", kind: "number", cell: ({ count }) => countText(count) },
  { head: "Last line", kind: "message", cell: ({ text }) => `<bdi>${escaped(text)}</bdi>` },
  { head: "Code", kind: "", cell: ({ code }) => `<code>${escaped(code, LONGEST.word)}</code>` },
  { head: "For example", kind: "key", cell: ({ example }) => `<bdi>${escaped(example, LONGEST.key)}</bdi>` },
];

const KEY: Column<ReportItem> = {
  head: "Item",
  kind: "key",
  cell: ({ key }) => `<bdi>${escaped(key, LONGEST.key)}</bdi>`,
};
const STATUS: Column<ReportItem> = {
  head: "Status",
  kind: "status",
  cell: ({ status }) => `<i class="${outcomeOf(status)}"></i>${escaped(status.replaceAll("_", " "), LONGEST.word)}`,
};
const DURATION: Column<ReportItem> = {
  head: "Duration",
  kind: "number",
  cell: ({ durationMs }) => durationText(durationMs),
};
const RUN: Column<ReportItem> = {
  head: "Run",
  kind: "",
  cell: ({ run }) => (run === null ? "–" : `<code>${escaped(run, LONGEST.word)}</code>`),
};

const SLOWEST_COLUMNS: readonly Column<ReportItem>[] = [
  KEY,
  STATUS,
  DURATION,
  {
    head: "Peak memory",
    kind: "number",
    cell: ({ memoryBytesPeak }) => (memoryBytesPeak === null ? "–" : roughBytesText(memoryBytesPeak)),
  },
  { head: "Attempt", kind: "number", cell: ({ attempt }) => countText(attempt) },
  RUN,
];

const FAILURE_COLUMNS: readonly Column<ReportItem>[] = [
  KEY,
  STATUS,
  {
    head: "Code",
    kind: "",
    cell: ({ error, exitCode }) =>
      `<code>${escaped(error?.code ?? "–", LONGEST.word)}</code>${exitCode === null ? "" : ` (${exitCode})`}`,
  },
  { head: "Message", kind: "message", cell: ({ error }) => `<bdi>${escaped(error?.message ?? "")}</bdi>` },
  DURATION,
  RUN,
];
