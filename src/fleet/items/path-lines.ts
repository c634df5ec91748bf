import type { ManifestRecord } from "./json-lines.ts";
import { type ManifestLine, textOf } from "./manifest-lines.ts";

/** One path a line, as `find` prints them. Empty lines are skipped; all else is part of the name. */
export async function* pathLines(
  lines: AsyncIterable<readonly ManifestLine[]>,
  file: string,
): AsyncGenerator<ManifestRecord> {
  for await (const batch of lines) {
    for (const line of batch) {
      const path = textOf(line, file);
      if (path !== "") yield { line: line.number, fields: { path } };
    }
  }
}
