import { MAX_JSON_DEPTH, MAX_JSON_VALUES, parseJson } from "../../json/parse-json.ts";

/** What another process wrote into the database; undefined if it is no JSON, or too much. What cannot be read does not keep others from being read. */
export function saidIn(json: string): unknown {
  // An output is nested in its result.
  const parsed = parseJson(json, 2 * MAX_JSON_VALUES, 2 * MAX_JSON_DEPTH);
  return parsed.ok ? parsed.value : undefined;
}
