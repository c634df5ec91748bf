import { closest, distance } from "fastest-levenshtein";
import { z } from "zod";

/** A JSON Schema, or a part of one. */
export type JsonLook = Readonly<Record<string, unknown>>;

/** What a raw value may look like, as JSON Schema; `of` has that of a schema of zod. It may accept more than the parser, never less. */
export type Look = (of: (schema: z.ZodType) => JsonLook) => JsonLook;

const LOOK = Symbol("look");

/** Any value, for a transform that checks it. zod does not see what such a transform accepts: `look` says it, for editors. */
function rawValue(look: Look): z.ZodUnknown {
  return Object.assign(z.unknown(), { [LOOK]: look });
}

/** Null for what is not a {@link rawValue}. */
export function lookOf(schema: object): Look | null {
  return LOOK in schema ? (schema[LOOK] as Look) : null;
}

const MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 } as const;
const BYTES = { "": 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3 } as const;

/** `500ms`, `30s`, `5m`, `1h` in milliseconds; null for anything else. A bare number is refused, because it has no unit. */
export function parseDuration(raw: unknown): number | null {
  const [, amount, unit] = /^(\d{1,9})(ms|s|m|h)$/.exec(scalarText(raw)) ?? [];
  return amount === undefined ? null : positive(Number(amount) * MS[unit as keyof typeof MS]);
}

/** `512k`, `64m`, `1g` (binary), or a plain number, in bytes; null for anything else. */
export function parseSize(raw: unknown): number | null {
  const [, amount, unit] = /^(\d{1,15})([kmg]?)$/.exec(scalarText(raw)) ?? [];
  return amount === undefined ? null : positive(Number(amount) * BYTES[unit as keyof typeof BYTES]);
}

/** A duration in a file, parsed to milliseconds. */
export const duration = unit(
  parseDuration,
  { type: "string", pattern: "^[0-9]{1,9}(ms|s|m|h)$" },
  "must be a duration such as `500ms`, `30s`, `5m` or `1h`",
);

/** A size in a file, parsed to bytes. */
export const size = unit(
  parseSize,
  { type: ["integer", "string"], minimum: 1, pattern: "^[0-9]{1,15}[kmg]?$" },
  "must be a size such as `512k`, `64m`, `1g`, or a number of bytes",
);

function unit(parse: (raw: unknown) => number | null, look: JsonLook, message: string) {
  return rawValue(() => look).transform((raw, context): number => {
    const parsed = raw === undefined ? null : parse(raw);
    if (parsed !== null) return parsed;
    context.issues.push({ code: "custom", input: raw, message: raw === undefined ? "is missing" : message });
    return z.NEVER;
  });
}

function scalarText(raw: unknown): string {
  return typeof raw === "string" || typeof raw === "number" ? String(raw) : "";
}

function positive(value: number): number | null {
  return Number.isSafeInteger(value) && value > 0 ? value : null;
}

type Issue = z.core.$ZodIssue;

/** A map that has these keys and no other. An unknown key is answered with the nearest known one. */
export function map<Shape extends z.ZodRawShape>(shape: Shape) {
  const known = Object.keys(shape);
  return z.strictObject(shape, {
    // One line for each key: `checkShape` makes one problem of each, at its own place.
    error: (issue) =>
      issue.code === "unrecognized_keys"
        ? issue.keys.map((key) => describeUnknownKey(key, known)).join("\n")
        : undefined,
  });
}

/**
 * A map with names that the person chooses. `nameFault` returns the fault of a name, or null.
 *
 * Unlike `z.record` it reports bad names and bad values together, and cannot lose a key.
 */
export function namedMap<Value extends z.ZodType>(
  value: Value,
  nameFault: (name: string) => string | null,
  maxEntries: number,
) {
  const look: Look = (of) => ({ type: "object", additionalProperties: of(value), maxProperties: maxEntries });
  return rawValue(look).transform((raw, context): ReadonlyMap<string, z.output<Value>> => {
    const entries = new Map<string, z.output<Value>>();
    if (kindOf(raw) !== "map") return refuse(context, raw, "must be a map of names");
    const names = Object.keys(raw as object);
    if (names.length > maxEntries)
      return refuse(context, raw, `has ${names.length} entries; at most ${maxEntries} are allowed`);
    for (const name of names) {
      const fault = nameFault(name);
      if (fault !== null) {
        context.issues.push({ code: "custom", input: raw, path: [name], message: fault, params: { at: "key" } });
      }
      const result = value.safeParse((raw as Record<string, unknown>)[name], { error: describeIssue, jitless: true });
      if (result.success) entries.set(name, result.data);
      else pass(context, raw, result.error.issues, [name]);
    }
    return entries;
  });
}

type Kind = "map" | "list" | "text" | "switch" | "number" | "nothing";

/**
 * A value that may be written in more than one form, distinguished by its kind alone.
 *
 * `z.union` would try each form and report the problems of all of them; a person means only one.
 */
export function byKind<Forms extends Partial<Record<Kind, z.ZodType>>>(forms: Forms, expected: string) {
  const look: Look = (of) => ({ anyOf: Object.values(forms).map((form) => of(form)) });
  return byLook((raw) => forms[kindOf(raw)] as Extract<Forms[keyof Forms], z.ZodType> | undefined, expected, look);
}

/** Like {@link byKind}, if the kind is not enough: `pick` chooses the form by the raw value. */
export function byLook<Form extends z.ZodType>(pick: (raw: unknown) => Form | undefined, expected: string, look: Look) {
  return rawValue(look).transform((raw, context): z.output<Form> => {
    if (raw === undefined) return refuse(context, raw, "is missing");
    const form = pick(raw);
    if (form === undefined) return refuse(context, raw, expected);
    const result = form.safeParse(raw, { error: describeIssue, jitless: true });
    if (!result.success) pass(context, raw, result.error.issues);
    return result.success ? result.data : z.NEVER;
  });
}

/** A schema that is built when a value of it is read: a key that most files do not have costs their readers nothing. */
export function later<Schema extends z.ZodType>(schema: () => Schema) {
  return byLook(schema, "", (of) => of(schema()));
}

export function kindOf(raw: unknown): Kind {
  if (raw === null || raw === undefined) return "nothing";
  if (Array.isArray(raw)) return "list";
  if (typeof raw === "object") return "map";
  return typeof raw === "boolean" ? "switch" : typeof raw === "number" ? "number" : "text";
}

function refuse(context: z.core.$RefinementCtx, input: unknown, message: string): never {
  context.issues.push({ code: "custom", input, message });
  return z.NEVER;
}

function pass(context: z.core.$RefinementCtx, input: unknown, issues: readonly Issue[], under: readonly string[] = []) {
  for (const issue of issues) context.issues.push({ ...issue, input, path: [...under, ...issue.path] } as never);
}

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

function describeUnknownKey(key: string, known: readonly string[]): string {
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
