import { clipped, escapedJson, printable } from "../../text/visible.ts";
import type { ItemResult } from "../model/item.ts";
import type { SummaryLine } from "../model/store.ts";
import { escaped, type OutcomeClass, outcomeOf, type ReportFleet, type ReportItem } from "./measures/gathered.ts";

/** A spreadsheet accepts 32,767 characters in one cell. */
const MAX_CELL = 32_000;

const COLUMNS: readonly (readonly [string, (result: ItemResult) => string | number | null])[] = [
  ["index", ({ index }) => index],
  ["key", ({ key }) => key],
  ["status", ({ status }) => status],
  ["run", ({ run }) => run],
  ["attempt", ({ attempt }) => attempt],
  ["exit_code", ({ exitCode }) => exitCode],
  ["error_code", ({ error }) => error?.code ?? null],
  ["error_message", ({ error }) => error?.message ?? null],
  ["started_at", ({ startedAt }) => startedAt],
  ["ended_at", ({ endedAt }) => endedAt],
  ["duration_ms", ({ durationMs }) => durationMs],
  ["memory_bytes_peak", ({ memoryBytesPeak }) => memoryBytesPeak],
  ["output", ({ output }) => cellText(output)],
  ["stderr_line", ({ stderrLine }) => stderrLine],
];

/** A field of the item may be called like one of these. */
const FIELD_PREFIX = "item.";

/**
 * Results as CSV (RFC 4180) with a header line. Spreadsheets run text that starts with `=`, `+`, `-` or `@` as a formula, so
 * such text gets a leading `'`. Control and formatting characters become their codes, and long outputs are cut. JSON lines
 * contain the unchanged values. `fields`: the items' own, each in a column `item.NAME` after the others.
 */
export async function* resultsCsv(
  results: AsyncIterable<ItemResult> | Iterable<ItemResult>,
  fields: readonly string[] = [],
): AsyncGenerator<string> {
  yield line([...COLUMNS.map(([name]) => name), ...fields.map((name) => `${FIELD_PREFIX}${name}`)]);
  for await (const result of results) {
    const own = fields.map((name) => (Object.hasOwn(result.fields, name) ? cellText(result.fields[name]) : null));
    yield line([...COLUMNS.map(([, cellOf]) => cellOf(result)), ...own]);
  }
}

function cellText(value: unknown): string | null {
  return typeof value === "string" || value === null || value === undefined ? (value ?? null) : JSON.stringify(value);
}

function line(values: readonly (string | number | null)[]): string {
  return `${values.map(cell).join(",")}\r\n`;
}

function cell(value: string | number | null | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = withoutFormula(printable(clipped(value, MAX_CELL), "\n\r\t\f", "kept"));
  return /[",\r\n\f]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Also covers full-width forms and leading spaces, which some programs skip. */
function withoutFormula(text: string): string {
  return /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20\t\r]/.test(text) ? `'${text}` : text;
}

/** Results as JSON lines, in their order. */
export async function* resultsJsonl(results: AsyncIterable<ItemResult> | Iterable<ItemResult>): AsyncGenerator<string> {
  for await (const result of results) yield jsonLine(result);
}

/** A value as a JSON line that cannot control a terminal, see {@link escapedJson}. */
export function jsonLine(value: object): string {
  return `${escapedJson(JSON.stringify(value))}\n`;
}

const CHUNK_CHARACTERS = 65_536;

/** The same text in larger chunks: one write for each line would be slow. */
export async function* inChunks(pieces: AsyncIterable<string> | Iterable<string>): AsyncGenerator<string> {
  let chunk = "";
  for await (const piece of pieces) {
    chunk += piece;
    if (chunk.length < CHUNK_CHARACTERS) continue;
    yield chunk;
    chunk = "";
  }
  if (chunk !== "") yield chunk;
}

/** The input of a report in the form of JUnit. */
interface JunitData {
  readonly fleet: Pick<ReportFleet, "id" | "worker" | "items" | "why" | "createdAt" | "endedAt">;
  /** How many items ended with which status. */
  readonly summary: readonly Pick<SummaryLine, "status" | "count">[];
  /** Every done item once, in any order. */
  readonly results: AsyncIterable<ReportItem> | Iterable<ReportItem>;
  /** What an item printed on standard error. */
  readonly stderrOf: (key: string) => Promise<string>;
}

const MAX_NAME = 500;
const MAX_MESSAGE = 4000;
const MAX_STDERR = 8000;
/** Further failures have their message alone. */
const MAX_WITH_STDERR = 1000;

/** What a test case has for an item that did not succeed; an item that was not allowed to do something, or was lost, is an error. */
const ELEMENTS: Readonly<Record<OutcomeClass, "failure" | "error" | "skipped" | null>> = {
  succeeded: null,
  cached: null,
  pending: "skipped",
  failed: "failure",
  limited: "failure",
  refused: "error",
  stopped: "error",
};

/**
 * A fleet's results as XML in the form of JUnit, in pieces: one test case for each item. Keys, messages and outputs are as manifests and
 * workers chose them: they are cut and escaped, and characters that XML cannot have become their codes. If items have not ended, the last
 * test case is an error that counts them: a report does not look whole if the fleet is not.
 */
export async function* junitXml({ fleet, summary, results, stderrOf }: JunitData): AsyncGenerator<string> {
  const counts = { failure: 0, error: 0, skipped: 0 };
  let done = 0;
  for (const { status, count } of summary) {
    done += count;
    const element = ELEMENTS[outcomeOf(status)];
    if (element !== null) counts[element] += count;
  }
  const left = fleet.items - done;
  if (left > 0) counts.error += 1;
  const totals = `tests="${done + (left > 0 ? 1 : 0)}" failures="${counts.failure}" errors="${counts.error}" skipped="${counts.skipped}"`;
  const name = xmlAttribute(fleet.worker);
  const time = seconds(Date.parse(fleet.endedAt ?? fleet.createdAt) - Date.parse(fleet.createdAt));
  yield `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="${name}" ${totals}>\n`;
  yield `<testsuite name="${name}" id="${xmlAttribute(fleet.id)}" timestamp="${fleet.createdAt.slice(0, 19)}" time="${time}" ${totals}>\n`;
  let withStderr = 0;
  for await (const item of results) {
    const element = ELEMENTS[outcomeOf(item.status)];
    const hasStderr = element !== null && element !== "skipped" && ++withStderr <= MAX_WITH_STDERR;
    yield testCase(fleet.worker, item, element, hasStderr ? await stderrOf(item.key) : "");
  }
  if (left > 0) {
    const why = `${left} of ${fleet.items} items have not ended${fleet.why === null ? "" : `: ${fleet.why}`}`;
    yield `<testcase classname="${name}" name="items that have not ended"><error type="NOT_ENDED" message="${xmlAttribute(why)}"/></testcase>\n`;
  }
  yield "</testsuite>\n</testsuites>\n";
}

function testCase(
  worker: string,
  { key, status, error, durationMs }: ReportItem,
  element: "failure" | "error" | "skipped" | null,
  stderr: string,
): string {
  const head = `<testcase classname="${xmlAttribute(worker)}" name="${xmlAttribute(key)}" time="${seconds(durationMs)}"`;
  if (element === null) return `${head}/>\n`;
  const message = error?.message ?? status.replaceAll("_", " ");
  if (element === "skipped") return `${head}><skipped message="${xmlAttribute(message)}"/></testcase>\n`;
  const printed = stderr === "" ? "" : `<system-err>${xmlContent(stderr.slice(-MAX_STDERR), MAX_STDERR)}</system-err>`;
  const type = xmlAttribute(error?.code ?? status);
  return `${head}><${element} type="${type}" message="${xmlAttribute(message)}">${xmlContent(message, MAX_MESSAGE)}</${element}>${printed}</testcase>\n`;
}

/** Text for a quoted attribute, cut. */
export function xmlAttribute(text: string): string {
  return escaped(possible(text), MAX_NAME);
}

/** Text for an element, with its line breaks. A `>` is always escaped, so it cannot end a section. */
export function xmlContent(text: string, max: number): string {
  const lines = printable(clipped(possible(text), max), "\n\t");
  return lines.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Without the characters that XML 1.0 cannot have and that are no control characters. */
function possible(text: string): string {
  return text.replace(/\r\n?/g, "\n").replace(/[\ufffe\uffff]/g, "\ufffd");
}

function seconds(ms: number): string {
  return (Math.max(0, ms) / 1000).toFixed(3);
}
