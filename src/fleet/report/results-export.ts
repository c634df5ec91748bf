import { clipped, escapedJson, printable } from "../../text/visible.ts";
import type { ItemResult } from "../model/item.ts";

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
  ["output", ({ output }) => textOf(output)],
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
    const own = fields.map((name) => (Object.hasOwn(result.fields, name) ? textOf(result.fields[name]) : null));
    yield line([...COLUMNS.map(([, cellOf]) => cellOf(result)), ...own]);
  }
}

function textOf(value: unknown): string | null {
  return typeof value === "string" || value === null || value === undefined ? (value ?? null) : JSON.stringify(value);
}

function line(values: readonly (string | number | null)[]): string {
  return `${values.map(cell).join(",")}\r\n`;
}

function cell(value: string | number | null | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = withoutFormula(printable(clipped(value, MAX_CELL), "\n\r\t", "kept"));
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
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
