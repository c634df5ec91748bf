import { isUtf8 } from "node:buffer";
import { posix } from "node:path";
import { Readable } from "node:stream";
import { CsvError, parse } from "csv-parse";
import { fileFault, resolveHostPlace } from "../../declarations/place/host-place.ts";
import { DeclarationError } from "../../declarations/yaml/problem.ts";
import { kindOf } from "../../declarations/yaml/shape.ts";
import { contentOf } from "../../files/host/content.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { jsonFaultOffset, parseJson } from "../../json/parse-json.ts";
import { present } from "../../text/present.ts";
import type { ManifestItem } from "../model/item.ts";
import { ItemsError, withPathFields } from "./item-fields.ts";
import { matchingFiles, parseGlob, placeAsWritten, type SkippedEntry } from "./matching-files.ts";

const MAX_LINE_BYTES = 1024 * 1024;

/** The format of a manifest: JSON lines, CSV with a header line, or one path for each line. */
export type ManifestFormat = "jsonl" | "csv" | "paths";

/** Where a fleet's items come from. */
export type ItemSource =
  /** Files whose path matches. The pattern is relative to `cwd` or absolute. */
  | { readonly kind: "glob"; readonly pattern: string }
  /** `path`: relative to `cwd`. If `format` is absent, the suffix decides: `.jsonl`, `.ndjson` or `.csv`. */
  | { readonly kind: "manifest"; readonly path: string; readonly format?: ManifestFormat }
  /** Bytes of a stream; messages call it `name`. */
  | {
      readonly kind: "stream";
      readonly stream: AsyncIterable<Uint8Array | string>;
      readonly name: string;
      readonly format: ManifestFormat;
    }
  /** Values from a program: objects of fields, or paths as strings. */
  | { readonly kind: "values"; readonly values: AsyncIterable<unknown> | Iterable<unknown> };

/** The base of a source's relative paths: the `manifestDir` of its templates. Absolute. */
export function folderOf(source: ItemSource, cwd: string): string {
  if (source.kind === "manifest") return posix.dirname(posix.resolve(cwd, source.path));
  return source.kind === "glob" ? parseGlob(source.pattern).folder(cwd) : cwd;
}

/** The format by a manifest's suffix. Throws an `ItemsError` for another suffix. */
export function formatOf(path: string): ManifestFormat {
  const suffix = posix.extname(path).toLowerCase();
  const format = FORMATS.get(suffix);
  if (format !== undefined) return format;
  throw new ItemsError(
    `${path}: unknown manifest format; choose jsonl, csv or paths, or use the suffix .jsonl, .ndjson or .csv`,
  );
}

const FORMATS: ReadonlyMap<string, ManifestFormat> = new Map([
  [".jsonl", "jsonl"],
  [".ndjson", "jsonl"],
  [".csv", "csv"],
]);

const MAX_COLUMNS = 1000;

/** CSV with commas. The first record names the columns; every other record has as many values. Values are text. */
async function* csvRecords(
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
    for (const line of batch) manifestLineText(line, file);
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

const CHUNK_BYTES = 256 * 1024;
/** As in `open(2)`. */
const O_RDONLY = 0;

/**
 * The content of a manifest, in chunks. Links to it belong to the user and are followed. A change during reading is an error,
 * because the set of items would be undefined.
 */
async function* manifestBytes(path: string, cwd: string): AsyncGenerator<Buffer> {
  const place = await resolveHostPlace(posix.resolve(cwd), path);
  if (!place.ok) throw manifestFault(path, 1, 1, place.fault);
  if (place.directory) throw manifestFault(path, 1, 1, "is a directory, not a file");
  using file = opened(place.host, path);
  const content = contentOf(file);
  for (let at = 0; at < content.size; ) {
    const chunk = await content.read(at, CHUNK_BYTES);
    if (chunk.length === 0) break;
    at += chunk.length;
    yield chunk;
  }
  if (content.changed()) throw manifestFault(path, 1, 1, "changed while Corral read it; start the fleet again");
}

function opened(host: string, shown: string): Descriptor {
  try {
    using named = Descriptor.name(host);
    if (named.stat().isFile()) return named.reopen(O_RDONLY);
  } catch (error) {
    throw manifestFault(shown, 1, 1, fileFault(error));
  }
  throw manifestFault(shown, 1, 1, "is not a regular file");
}

export interface ItemReading {
  /** The base for relative patterns and manifests. Absolute. */
  readonly cwd: string;
  readonly signal: AbortSignal;
  /** Called for entries that the pattern may have meant but that cannot be items: links and devices. */
  readonly leftOut: (what: SkippedEntry) => void;
  /** Called for what the user may not have meant with the items as a whole. */
  readonly note?: (text: string) => void;
  /** False: that there is no item is an error. */
  readonly allowEmpty?: boolean;
}

/**
 * The items of a source, in its order. At most one chunk of the manifest is read ahead, so that large manifests are never
 * completely in memory. Throws a `DeclarationError` for an invalid line and an `ItemsError` for an invalid source, or for
 * one without items.
 */
export async function* readItems(source: ItemSource, reading: ItemReading): AsyncGenerator<ManifestItem> {
  const folder = folderOf(source, reading.cwd);
  let index = 0;
  for await (const { record, file, place, refusal } of entriesOf(source, reading)) {
    reading.signal.throwIfAborted();
    const fields = withPathFields(record, folder);
    yield { index, fields, record, place: place ?? `item ${index}`, ...present({ file, refusal }) };
    index += 1;
  }
  if (index === 0 && !reading.allowEmpty) throw new ItemsError(`${nameOf(source)} ${NO_ITEMS}`);
}

const NO_ITEMS = "has no items. Check it, or allow that with --allow-empty (in a file `allow_empty: true`)";

function nameOf(source: ItemSource): string {
  if (source.kind === "manifest") return source.path;
  return source.kind === "stream" ? source.name : "the list of items";
}

interface Entry extends Pick<ManifestItem, "record" | "file" | "refusal"> {
  readonly place?: string;
}

function entriesOf(source: ItemSource, reading: ItemReading): AsyncIterable<Entry> {
  const { cwd, signal } = reading;
  switch (source.kind) {
    case "glob":
      return fileEntries(source.pattern, reading);
    case "values":
      return valueEntries(abortable(source.values, signal));
    case "stream":
      return lineEntries(abortable(source.stream, signal), source.format, source.name, signal);
    case "manifest": {
      const format = source.format ?? formatOf(source.path);
      return lineEntries(manifestBytes(source.path, cwd), format, source.path, signal);
    }
  }
}

async function* fileEntries(pattern: string, reading: ItemReading): AsyncGenerator<Entry> {
  const glob = parseGlob(pattern);
  const folder = glob.folder(reading.cwd);
  let leftOut = 0;
  const lost: SkippedEntry[] = [];
  const counting = {
    ...reading,
    leftOut: (what: SkippedEntry): void => {
      if (what.isLost) lost.push(what);
      else {
        leftOut += 1;
        reading.leftOut(what);
      }
    },
  };
  let isEmpty = true;
  for await (const relative of matchingFiles(glob, counting)) {
    isEmpty = false;
    yield* lostEntries(lost.splice(0));
    const path = posix.join(folder, relative);
    yield { record: { path }, file: path, place: placeAsWritten(glob, [relative]) };
  }
  isEmpty &&= lost.length === 0;
  yield* lostEntries(lost);
  if (isEmpty && !reading.allowEmpty) {
    const others = leftOut === 0 ? "" : `; ${leftOut} ${leftOut === 1 ? "entry was" : "entries were"} left out`;
    throw new ItemsError(`${pattern}: no file in ${folder} matches${others}. Check the pattern and the folder.`);
  }
}

/** No item of them can be made: what would be made of their names is not what is there. */
function lostEntries(lost: readonly SkippedEntry[]): Entry[] {
  return lost.map(({ place, why }) => ({ record: {}, place, refusal: `${place} ${why}` }));
}

async function* lineEntries(
  stream: AsyncIterable<Uint8Array | string>,
  format: ManifestFormat,
  file: string,
  signal: AbortSignal,
): AsyncGenerator<Entry> {
  const lines = manifestLines(stream, file, signal);
  const records: AsyncIterable<ManifestRecord> = READERS[format](lines, file);
  for await (const { line, fields } of records) {
    yield { record: fields, place: `${file}:${line}` };
  }
}

const READERS = { jsonl: jsonLines, csv: csvRecords, paths: pathLines } as const;

async function* valueEntries(values: AsyncIterable<unknown> | Iterable<unknown>): AsyncGenerator<Entry> {
  let index = 0;
  for await (const value of values) {
    const fields = fieldsOf(value);
    if (fields === null) throw new ItemsError(`item ${index}: must be an object of fields, or a path as a string`);
    yield { record: fields };
    index += 1;
  }
}

/** The same values, but waiting ends when the signal is aborted: standard input may never send anything. */
async function* abortable<Value>(
  values: AsyncIterable<Value> | Iterable<Value>,
  signal: AbortSignal,
): AsyncGenerator<Value> {
  if (!(Symbol.asyncIterator in values)) {
    yield* values;
    return;
  }
  const iterator = values[Symbol.asyncIterator]();
  let ended = false;
  try {
    for (;;) {
      const next = await nextOf(iterator, signal);
      ended = next.done === true;
      if (next.done) return;
      yield next.value;
    }
  } finally {
    // A pending `next` settles only with its next value, so `return` is not awaited.
    if (!ended) void Promise.resolve(iterator.return?.()).catch(() => {});
  }
}

async function nextOf<Value>(iterator: AsyncIterator<Value>, signal: AbortSignal): Promise<IteratorResult<Value>> {
  signal.throwIfAborted();
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = (): void => reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([iterator.next(), promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** The fields of one line of a manifest. */
export interface ManifestRecord {
  readonly line: number;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** One JSON value for each line: an object of fields, or a path as a string. Empty lines are skipped. */
async function* jsonLines(lines: AsyncIterable<readonly ManifestLine[]>, file: string): AsyncGenerator<ManifestRecord> {
  for await (const batch of lines) {
    for (const line of batch) {
      const text = manifestLineText(line, file);
      if (text.trim() === "") continue;
      const parsed = parseJson(text);
      if (!parsed.ok) {
        const column = jsonFaultOffset(text, parsed.problem) + 1;
        throw manifestFault(file, line.number, column, `this is not JSON: ${parsed.problem}`);
      }
      const fields = fieldsOf(parsed.value);
      if (fields === null)
        throw manifestFault(file, line.number, 1, "must be an object of fields, or a path as a string");
      yield { line: line.number, fields };
    }
  }
}

/** A JSON value as an item's fields; null if it is neither an object nor a string. A string is a path. */
function fieldsOf(value: unknown): Readonly<Record<string, unknown>> | null {
  if (typeof value === "string") return { path: value };
  return kindOf(value) === "map" ? (value as Record<string, unknown>) : null;
}

/** One path for each line, as `find` prints them. Empty lines are skipped; white space belongs to the name. */
async function* pathLines(lines: AsyncIterable<readonly ManifestLine[]>, file: string): AsyncGenerator<ManifestRecord> {
  for await (const batch of lines) {
    for (const line of batch) {
      const path = manifestLineText(line, file);
      if (path !== "") yield { line: line.number, fields: { path } };
    }
  }
}

/** One line that is not yet checked to be text. */
export interface ManifestLine {
  /** From 1. */
  readonly number: number;
  /** Includes the line break, if any, but no byte order mark. */
  readonly bytes: Buffer;
}
const LINE_BREAK = 0x0a;
const BYTE_ORDER_MARK = Buffer.from("\uFEFF");

/** The lines of a stream, in batches. Memory holds at most one chunk and one line more than the consumer took. */
export async function* manifestLines(
  stream: AsyncIterable<Uint8Array | string>,
  file: string,
  signal: AbortSignal,
): AsyncGenerator<readonly ManifestLine[]> {
  let kept: Buffer[] = [];
  let keptBytes = 0;
  let number = 1;
  const keep = (bytes: Buffer): void => {
    keptBytes += bytes.length;
    if (keptBytes > MAX_LINE_BYTES)
      throw manifestFault(
        file,
        number,
        1,
        `the line is longer than ${MAX_LINE_BYTES} bytes; pass large data as a file`,
      );
    kept.push(bytes);
  };
  const line = (): ManifestLine => {
    const [only = Buffer.alloc(0)] = kept;
    const bytes = kept.length < 2 ? only : Buffer.concat(kept);
    kept = [];
    keptBytes = 0;
    return { number: number++, bytes: number === 2 ? withoutMark(bytes) : bytes };
  };
  for await (const piece of stream) {
    signal.throwIfAborted();
    const chunk =
      typeof piece === "string" ? Buffer.from(piece) : Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    const lines: ManifestLine[] = [];
    let begin = 0;
    for (let found = chunk.indexOf(LINE_BREAK); found >= 0; found = chunk.indexOf(LINE_BREAK, begin)) {
      keep(chunk.subarray(begin, found + 1));
      lines.push(line());
      begin = found + 1;
    }
    if (begin < chunk.length) keep(chunk.subarray(begin));
    if (lines.length > 0) yield lines;
  }
  if (keptBytes > 0) yield [line()];
}

/** The line without its line break. Throws if it is not UTF-8. */
export function manifestLineText({ number, bytes }: ManifestLine, file: string): string {
  const text = bytes.toString();
  if (!isUtf8(bytes)) throw manifestFault(file, number, text.indexOf("\uFFFD") + 1, "this is not UTF-8");
  return text.replace(/\r?\n$/, "");
}

function withoutMark(bytes: Buffer): Buffer {
  const marked = bytes.subarray(0, BYTE_ORDER_MARK.length).equals(BYTE_ORDER_MARK);
  return marked ? bytes.subarray(BYTE_ORDER_MARK.length) : bytes;
}

/** An error in a manifest, with its position. It ends the reading. */
export function manifestFault(file: string, line: number, column: number, message: string): DeclarationError {
  return new DeclarationError([{ file, line, column, path: "", message }]);
}
