import { posix } from "node:path";
import { ItemsError } from "./faults.ts";
import { parseGlob } from "./glob.ts";

/** How a manifest is written: one JSON value a line, CSV with a line of headings, or one path a line. */
export type ManifestFormat = "jsonl" | "csv" | "paths";

/** Where a fleet's items come from. */
export type ItemSource =
  /** Files whose path matches, relative to `cwd` or absolute. */
  | { readonly kind: "glob"; readonly pattern: string }
  /** `path`: relative to `cwd`. Without a format its name tells: `.jsonl`, `.ndjson` or `.csv`. */
  | { readonly kind: "manifest"; readonly path: string; readonly format?: ManifestFormat }
  /** Bytes that come from elsewhere; `name` is what messages call it. */
  | {
      readonly kind: "stream";
      readonly stream: AsyncIterable<Uint8Array | string>;
      readonly name: string;
      readonly format: ManifestFormat;
    }
  /** A program's own: each a map of fields, or the text of a path. */
  | { readonly kind: "values"; readonly values: AsyncIterable<unknown> | Iterable<unknown> };

/** The folder in which a source's relative paths begin: the `manifestDir` of its templates. Absolute. */
export function folderOf(source: ItemSource, cwd: string): string {
  if (source.kind === "manifest") return posix.dirname(posix.resolve(cwd, source.path));
  return source.kind === "glob" ? parseGlob(source.pattern).folder(cwd) : cwd;
}

/** What a manifest's name says of its form. Throws an `ItemsError` where it says nothing. */
export function formatOf(path: string): ManifestFormat {
  const suffix = posix.extname(path).toLowerCase();
  const format = FORMATS.get(suffix);
  if (format !== undefined) return format;
  throw new ItemsError(
    `${path}: its name does not tell its form; say one of jsonl, csv, paths, or name it .jsonl, .ndjson or .csv`,
  );
}

const FORMATS: ReadonlyMap<string, ManifestFormat> = new Map([
  [".jsonl", "jsonl"],
  [".ndjson", "jsonl"],
  [".csv", "csv"],
]);
