import { posix } from "node:path";
import { ItemsError } from "./faults.ts";
import { parseGlob } from "./glob.ts";

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
