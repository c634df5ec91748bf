import { kindOf } from "../../declarations/yaml/shape.ts";
import { jsonFaultOffset } from "../../json/json-fault.ts";
import { parseJson } from "../../json/parse-json.ts";
import { type ManifestLine, manifestFault, textOf } from "./manifest-lines.ts";

/** What one line of a manifest says, before it is an item. */
export interface ManifestRecord {
  readonly line: number;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** One JSON value a line: a map of fields, or the text of a path. Empty lines are skipped. */
export async function* jsonLines(
  lines: AsyncIterable<readonly ManifestLine[]>,
  file: string,
): AsyncGenerator<ManifestRecord> {
  for await (const batch of lines) {
    for (const line of batch) {
      const text = textOf(line, file);
      if (text.trim() === "") continue;
      const parsed = parseJson(text);
      if (!parsed.ok) {
        const column = jsonFaultOffset(text, parsed.problem) + 1;
        throw manifestFault(file, line.number, column, `this is not JSON: ${parsed.problem}`);
      }
      const fields = fieldsOf(parsed.value);
      if (fields === null)
        throw manifestFault(file, line.number, 1, "must be a map of fields, or the text of a path in quotes");
      yield { line: line.number, fields };
    }
  }
}

/** A value as an item's fields; null where it is none. A text is a path. */
export function fieldsOf(value: unknown): Readonly<Record<string, unknown>> | null {
  if (typeof value === "string") return { path: value };
  return kindOf(value) === "map" ? (value as Record<string, unknown>) : null;
}

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
