import type { ItemResult } from "../model/item.ts";
import { shortened, withoutControls } from "./measures/escaped.ts";

/** What a spreadsheet takes of one cell is 32,767 characters. */
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
  ["output", ({ output }) => (typeof output === "string" || output === null ? output : JSON.stringify(output))],
];

/**
 * Results as CSV (RFC 4180), the first line being names. It is made for spreadsheets, which take text that begins with `=`,
 * `+`, `-` or `@` for a formula that they run: such text is given a `'` before it. Control and formatting characters
 * become their codes, and long outputs are cut. Lines of JSON have everything as it was.
 */
export async function* resultsCsv(results: AsyncIterable<ItemResult> | Iterable<ItemResult>): AsyncGenerator<string> {
  yield line(COLUMNS.map(([name]) => name));
  for await (const result of results) yield line(COLUMNS.map(([, told]) => told(result)));
}

function line(values: readonly (string | number | null)[]): string {
  return `${values.map(cell).join(",")}\r\n`;
}

function cell(value: string | number | null | undefined): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = withoutFormula(withoutControls(shortened(value, MAX_CELL), "\n\r\t"));
  return /[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The wide forms count as well, and so does what stands behind spaces: some programs skip those. */
function withoutFormula(text: string): string {
  return /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20\t\r]/.test(text) ? `'${text}` : text;
}

/** Results as lines of JSON, in the order in which they come. */
export async function* resultsJsonl(results: AsyncIterable<ItemResult> | Iterable<ItemResult>): AsyncGenerator<string> {
  for await (const result of results) yield resultLine(result);
}

/**
 * One result as a line. JSON leaves some control and formatting characters as they are; here they are escaped, so that a
 * worker reaches nobody's terminal: whoever parses the line gets the same.
 */
export function resultLine(result: ItemResult): string {
  const json = JSON.stringify(result).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) =>
    // One beyond the first 65,536 is two halves in JSON.
    Array.from({ length: character.length }, (_, index) => hex(character.charCodeAt(index))).join(""),
  );
  return `${json}\n`;
}

function hex(code: number): string {
  return `\\u${code.toString(16).padStart(4, "0")}`;
}

const CHUNK_CHARACTERS = 65_536;

/** The same text in larger pieces: one write for each line would cost more than making it. */
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
