import { posix } from "node:path";
import type { ManifestItem } from "../model/item.ts";
import { abortable } from "./abortable.ts";
import { csvRecords } from "./csv-records.ts";
import { ItemsError } from "./faults.ts";
import { parseGlob } from "./glob.ts";
import { withPathFields } from "./item-fields.ts";
import { fieldsOf, jsonLines, type ManifestRecord, pathLines } from "./line-records.ts";
import { manifestBytes } from "./manifest-bytes.ts";
import { manifestLines } from "./manifest-lines.ts";
import { type LeftOut, matchingFiles, placeOf } from "./matching-files.ts";
import { folderOf, formatOf, type ItemSource, type ManifestFormat } from "./source.ts";

export interface Reading {
  /** The base for relative patterns and manifests. Absolute. */
  readonly cwd: string;
  readonly signal: AbortSignal;
  /** Called for entries that the pattern may have meant but that cannot be items: links, devices, unreadable directories. */
  readonly leftOut: (what: LeftOut) => void;
  /** False: that there is no item is an error. */
  readonly allowEmpty?: boolean;
}

/**
 * The items of a source, in its order. At most one chunk of the manifest is read ahead, so that large manifests are never
 * completely in memory. Throws a `DeclarationError` for an invalid line and an `ItemsError` for an invalid source, or for
 * one without items.
 */
export async function* readItems(source: ItemSource, reading: Reading): AsyncGenerator<ManifestItem> {
  const folder = folderOf(source, reading.cwd);
  let index = 0;
  for await (const { record, file, place } of entriesOf(source, reading)) {
    reading.signal.throwIfAborted();
    const fields = withPathFields(record, folder);
    yield { index, fields, record, place: place ?? `item ${index}`, ...(file === undefined ? {} : { file }) };
    index += 1;
  }
  if (index === 0 && !reading.allowEmpty) throw new ItemsError(`${nameOf(source)} ${NO_ITEMS}`);
}

const NO_ITEMS = "has no items. Check it, or allow that with --allow-empty (in a file `allow_empty: true`)";

function nameOf(source: ItemSource): string {
  if (source.kind === "manifest") return source.path;
  return source.kind === "stream" ? source.name : "the list of items";
}

interface Entry extends Pick<ManifestItem, "record" | "file"> {
  readonly place?: string;
}

function entriesOf(source: ItemSource, reading: Reading): AsyncIterable<Entry> {
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

async function* fileEntries(pattern: string, reading: Reading): AsyncGenerator<Entry> {
  const glob = parseGlob(pattern);
  const folder = glob.folder(reading.cwd);
  let leftOut = 0;
  const counting = {
    ...reading,
    leftOut: (what: LeftOut): void => {
      leftOut += 1;
      reading.leftOut(what);
    },
  };
  let isEmpty = true;
  for await (const relative of matchingFiles(glob, counting)) {
    isEmpty = false;
    const path = posix.join(folder, relative);
    yield { record: { path }, file: path, place: placeOf(glob, [relative]) };
  }
  if (isEmpty && !reading.allowEmpty) {
    const others = leftOut === 0 ? "" : `; ${leftOut} ${leftOut === 1 ? "entry was" : "entries were"} left out`;
    throw new ItemsError(`${pattern}: no file in ${folder} matches${others}. Check the pattern and the folder.`);
  }
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
