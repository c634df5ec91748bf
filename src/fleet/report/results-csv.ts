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
