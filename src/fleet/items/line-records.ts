import { kindOf } from "../../declarations/yaml/shape.ts";
import { jsonFaultOffset } from "../../json/json-fault.ts";
import { parseJson } from "../../json/parse-json.ts";
import { type ManifestLine, manifestFault, textOf } from "./manifest-lines.ts";

/** The fields of one line of a manifest. */
export interface ManifestRecord {
  readonly line: number;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** One JSON value for each line: an object of fields, or a path as a string. Empty lines are skipped. */
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
        throw manifestFault(file, line.number, 1, "must be an object of fields, or a path as a string");
      yield { line: line.number, fields };
    }
  }
}

/** A JSON value as an item's fields; null if it is neither an object nor a string. A string is a path. */
export function fieldsOf(value: unknown): Readonly<Record<string, unknown>> | null {
  if (typeof value === "string") return { path: value };
  return kindOf(value) === "map" ? (value as Record<string, unknown>) : null;
}

/** One path for each line, as `find` prints them. Empty lines are skipped; white space belongs to the name. */
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
