import { closest, distance } from "fastest-levenshtein";
import type { z } from "zod";

/** The message for an issue of zod. Schemas word their own messages themselves. */
export function describeIssue(issue: z.core.$ZodRawIssue): string | undefined {
  if (issue.input === undefined && (issue.code === "invalid_type" || issue.code === "invalid_value"))
    return "is missing";
  switch (issue.code) {
    case "invalid_type":
      return `must be ${KINDS[issue.expected] ?? `a ${issue.expected}`}, not ${shown(issue.input)}${hint(issue)}`;
    case "invalid_value":
      return `must be ${alternatives(issue.values.map((value) => JSON.stringify(value)))}, not ${shown(issue.input)}`;
    case "too_small":
      return issue.origin === "string" || issue.origin === "array"
        ? "must not be empty"
        : `must be at least ${issue.minimum}`;
    case "too_big":
      return issue.origin === "string" || issue.origin === "array"
        ? `is too long; at most ${issue.maximum} ${issue.origin === "array" ? "entries" : "characters"} are allowed`
        : `must be at most ${issue.maximum}`;
    default:
      return undefined;
  }
}

export function describeUnknownKey(key: string, known: readonly string[]): string {
  return `unknown key \`${key}\`${nearest(key, known) ?? `; known keys: ${known.join(", ")}`}`;
}

/** `, did you mean …?`, or null if no known name is near enough. */
export function nearest(asked: string, known: readonly string[]): string | null {
  if (known.length === 0) return null;
  const best = closest(asked.toLowerCase(), [...known]);
  return distance(asked.toLowerCase(), best) <= Math.max(2, asked.length / 3) ? `, did you mean \`${best}\`?` : null;
}

const KINDS: Record<string, string> = {
  string: "a text",
  array: "a list",
  object: "a map",
  boolean: "`true` or `false`",
  int: "a whole number",
  number: "a number",
};

/** YAML reads `5` and `1.0` as numbers, even if a text was meant. */
function hint(issue: z.core.$ZodRawIssue): string {
  const scalar = typeof issue.input === "number" || typeof issue.input === "boolean";
  return issue.code === "invalid_type" && issue.expected === "string" && scalar
    ? `; write it in quotes: "${issue.input}"`
    : "";
}

function shown(input: unknown): string {
  if (Array.isArray(input)) return "a list";
  if (input !== null && typeof input === "object") return "a map";
  const text = JSON.stringify(input) ?? "nothing";
  return input === null ? "empty" : text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

function alternatives(values: readonly string[]): string {
  return values.length < 2 ? (values[0] ?? "nothing") : `${values.slice(0, -1).join(", ")} or ${values.at(-1)}`;
}
