import { Readable } from "node:stream";
import { CsvError, parse } from "csv-parse";
import type { DeclarationError } from "../../declarations/yaml/problem.ts";
import type { ManifestRecord } from "./line-records.ts";
import { MAX_LINE_BYTES, type ManifestLine, manifestFault, textOf } from "./manifest-lines.ts";

const MAX_COLUMNS = 1000;

/** CSV with commas. The first record names the columns; every other record has as many values. Values are text. */
export async function* csvRecords(
  lines: AsyncIterable<readonly ManifestLine[]>,
  file: string,
): AsyncGenerator<ManifestRecord> {
  let columns: readonly string[] | null = null;
  for await (const { line, values } of rowsOf(lines, file)) {
    if (columns === null) {
      columns = values.map((name) => name.trim());
      const fault = columnsFault(columns);
      if (fault !== null) throw manifestFault(file, line, 1, fault);
      continue;
    }
    if (values.length === 1 && columns.length > 1 && values[0]?.trim() === "") continue;
    if (values.length !== columns.length) {
      const found = values.length === 1 ? "1 value" : `${values.length} values`;
      throw manifestFault(file, line, 1, `has ${found}, but the first line names ${columns.length} columns`);
    }
    // Any column name is only a field, also `__proto__`.
    yield { line, fields: Object.fromEntries(columns.map((name, index) => [name, values[index]])) };
  }
}

interface Row {
  /** The first line of the record. */
  readonly line: number;
  readonly values: readonly string[];
}

async function* rowsOf(lines: AsyncIterable<readonly ManifestLine[]>, file: string): AsyncGenerator<Row> {
  /** The last line of the last complete record; the parser reads ahead of its consumer. */
  let end = 0;
  /** The parser counts a carriage return inside quotes as an additional line. */
  let surplus = 0;
  const parser = parse({
    max_record_size: MAX_LINE_BYTES,
    record_delimiter: ["\r\n", "\n"],
    relax_column_count: true,
    skip_empty_lines: true,
    on_record: (values, { lines: counted }) => {
      surplus += countIn(values, "\r");
      end = counted - surplus;
      return [String(end - countIn(values, "\n")), ...values];
    },
  });
  const source = Readable.from(checkedBytes(lines, file));
  source.on("error", (error) => parser.destroy(error)).pipe(parser);
  try {
    for await (const [line, ...values] of parser as AsyncIterable<string[]>) yield { line: Number(line), values };
  } catch (error) {
    throw error instanceof CsvError ? faultOfCsv(error, file, end, surplus) : error;
  } finally {
    source.destroy();
    parser.destroy();
  }
}

function countIn(values: readonly string[], character: string): number {
  return values.reduce((count, value) => count + value.split(character).length - 1, 0);
}

/** Refuses bytes that are not UTF-8 at their line; the parser would replace them. */
async function* checkedBytes(lines: AsyncIterable<readonly ManifestLine[]>, file: string): AsyncGenerator<Buffer> {
  for await (const batch of lines) {
    for (const line of batch) textOf(line, file);
    yield Buffer.concat(batch.map(({ bytes }) => bytes));
  }
}

function columnsFault(columns: readonly string[]): string | null {
  if (columns.length > MAX_COLUMNS) return `names ${columns.length} columns; at most ${MAX_COLUMNS} are read`;
  const empty = columns.indexOf("");
  if (empty >= 0) return `column ${empty + 1} has no name; the first line names the columns`;
  const twin = columns.find((name, index) => columns.indexOf(name) < index);
  return twin === undefined ? null : `names the column \`${twin}\` twice`;
}

function faultOfCsv(error: CsvError, file: string, end: number, surplus: number): DeclarationError {
  const known = CSV_FAULTS[error.code];
  // For a quote that is never closed only its start is useful.
  const line = error.code === "CSV_QUOTE_NOT_CLOSED" || !("lines" in error) ? end + 1 : Number(error.lines) - surplus;
  return manifestFault(file, line, 1, known ?? `this is not CSV: ${error.message}`);
}

const CSV_FAULTS: Readonly<Record<string, string>> = {
  CSV_QUOTE_NOT_CLOSED: "a quote in this record is never closed",
  CSV_MAX_RECORD_SIZE: `the record is longer than ${MAX_LINE_BYTES} bytes; check that every quote is closed`,
  CSV_INVALID_CLOSING_QUOTE: 'text follows a closing quote; write a quote inside quotes as `""`',
  INVALID_OPENING_QUOTE: 'a value without quotes contains a quote; put the value in quotes and write the quote as `""`',
};
