import { posix } from "node:path";
import type { TemplatePart } from "../../declarations/terms/sandbox-form.ts";
import { nearest } from "../../declarations/yaml/shape.ts";
import type { ManifestItem } from "../model/item.ts";

/** An invalid pattern, template or manifest format of a fleet. The message is for the user. */
export class ItemsError extends Error {
  override readonly name: string = "ItemsError";
}

/** A mistake in the template itself, which no item can mend. It is reported once, before a fleet is made. */
export class TemplateError extends ItemsError {
  override readonly name = "TemplateError";
  readonly problems: readonly TemplateProblem[];

  constructor(problems: readonly TemplateProblem[]) {
    super(problems.map(({ about, fault }) => `${about}: ${fault}`).join("\n"));
    this.problems = problems;
  }
}

export interface TemplateProblem {
  /** The kind of template, and its text: `attach {pth}=in.pdf`. */
  readonly about: string;
  readonly fault: string;
}

/**
 * One item makes no valid request. The reader of items decides what to do, so that one hostile line does not affect the
 * others.
 */
export class ItemRefusal extends ItemsError {
  override readonly name = "ItemRefusal";
  readonly index: number;
  readonly place: string;
  /** Null if the item has no valid key. */
  readonly key: string | null;
  /** Each names the template, the field, the reason and what is allowed. */
  readonly problems: readonly string[];
  /** Those that are mistakes of the template, if other items have the same fields. */
  readonly ofTemplate: readonly TemplateProblem[];

  constructor(
    item: { readonly index: number; readonly place: string },
    key: string | null,
    { found, ofTemplate }: Pick<Faults, "found" | "ofTemplate">,
  ) {
    super(found.map((problem) => `${item.place}: ${problem}`).join("\n"));
    this.index = item.index;
    this.place = item.place;
    this.key = key;
    this.problems = found;
    this.ofTemplate = ofTemplate;
  }
}

/** The result of a step that may fail because of an item or a template. `fault` continues the name of its subject. */
export type StepResult<Value> =
  | { readonly ok: true; readonly value: Value }
  /** `ofTemplate`: the fault is of the template, for every item with the same fields. */
  | { readonly ok: false; readonly fault: string; readonly ofTemplate?: boolean };

/** Collects all faults, so that they are reported together. */
export class Faults {
  readonly found: string[] = [];
  readonly ofTemplate: TemplateProblem[] = [];

  /** The value; or null, and the fault is recorded under the name of its subject. */
  valueOf<Value>(about: string, outcome: StepResult<Value>): Value | null {
    if (outcome.ok) return outcome.value;
    this.found.push(`${about}: ${outcome.fault}`);
    if (outcome.ofTemplate) this.ofTemplate.push({ about, fault: outcome.fault });
    return null;
  }
}

/** How many names are compared with an unknown one. */
const MAX_COMPARED = 1000;
const MAX_COMPARED_CHARS = 256;
const MAX_LISTED = 20;

/**
 * `meta.lang` is `lang` in `meta`, unless a field has that whole name. Only own properties count. `index` and `hash` are fields
 * of every item, unless it has others with these names.
 */
export function fieldOf(item: ManifestItem, name: string): StepResult<unknown> {
  const { fields } = item;
  if (Object.hasOwn(fields, name)) return { ok: true, value: fields[name] };
  const made = madeField(item, name);
  if (made !== null) return made;
  let value: unknown = fields;
  for (const step of name.split(".")) {
    if (!holds(value, step)) return { ok: false, fault: unknownField(name, fields), ofTemplate: true };
    value = value[step];
  }
  return { ok: true, value };
}

/** A field as part of a text. */
export function textOfField(item: ManifestItem, name: string): StepResult<string> {
  const field = fieldOf(item, name);
  if (!field.ok) return field;
  const { value } = field;
  if (typeof value === "string") return { ok: true, value };
  if (typeof value === "number" || typeof value === "boolean") return { ok: true, value: String(value) };
  const kind = Array.isArray(value) ? "a list" : value === null || value === undefined ? "nothing" : "a map";
  return {
    ok: false,
    fault: `the field \`${name}\` is ${kind}; only a text, a number, true and false are allowed here`,
  };
}

/** A text with its fields filled in. The caller checks the result. */
export function textOfParts(item: ManifestItem, parts: readonly TemplatePart[]): StepResult<string> {
  let value = "";
  for (const part of parts) {
    const piece = "text" in part ? { ok: true as const, value: part.text } : textOfField(item, part.field);
    if (!piece.ok) return piece;
    value += piece.value;
  }
  return { ok: true, value };
}

function holds(value: unknown, step: string): value is Record<string, unknown> {
  if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return false;
  return !Array.isArray(value) || /^\d+$/.test(step);
}

function unknownField(name: string, fields: Readonly<Record<string, unknown>>): string {
  const known = Object.keys(fields)
    .slice(0, MAX_COMPARED)
    .filter((each) => each.length <= MAX_COMPARED_CHARS);
  const listed = [...known.slice(0, MAX_LISTED), ...(known.length > MAX_LISTED ? ["…"] : []), ...MADE];
  const near = nearest(name, [...known, ...MADE]);
  const lead = near === null ? "; the" : `${near} The`;
  return `there is no field \`${name}\`${lead} fields are: ${listed.join(", ")}`;
}

/** Fields that every item has. */
const MADE = ["index", "hash"];
const MAX_DIGITS = 64;

/** `{index:4}` is `0007`, `{hash:12}` the first 12 digits of the hash. Null: it is another field. */
function madeField({ index, hash }: ManifestItem, name: string): StepResult<unknown> | null {
  const [, made, digits] = /^(index|hash)(?::(\d{1,9}))?$/.exec(name) ?? [];
  if (made === undefined) return null;
  const count = digits === undefined ? null : Number(digits);
  if (count !== null && (count < 1 || count > MAX_DIGITS))
    return { ok: false, fault: `the field \`${name}\` has from 1 to ${MAX_DIGITS} digits`, ofTemplate: true };
  if (made === "index") return { ok: true, value: count === null ? index : String(index).padStart(count, "0") };
  if (hash === undefined) return null;
  return hash.ok ? { ok: true, value: count === null ? hash.value : hash.value.slice(0, count) } : hash;
}

/**
 * An item's fields, plus fields derived from its `path`, which do not replace its own: `name`, `stem` and `ext` (with its
 * dot). A path that is relative or below `folder` also gives `relative` and `dir`, both from there.
 */
export function withPathFields(fields: Readonly<Record<string, unknown>>, folder: string): Record<string, unknown> {
  // Only own properties count: a field may be called `constructor`.
  const path = Object.hasOwn(fields, "path") ? fields.path : undefined;
  return typeof path !== "string" || path === "" ? { ...fields } : { ...pathFields(path, folder), ...fields };
}

function pathFields(path: string, folder: string): Record<string, string> {
  const name = posix.basename(path);
  const ext = posix.extname(name);
  const fields = { name, stem: name.slice(0, name.length - ext.length), ext };
  const relative = relativeTo(folder, path);
  if (relative === null) return fields;
  const dir = posix.dirname(relative);
  return { ...fields, relative, dir: dir === "." ? "" : dir };
}

/** A path that leads out of the directory keeps its `..`; using it is refused later. */
function relativeTo(folder: string, path: string): string | null {
  if (!path.startsWith("/")) return path.replace(/^(\.\/+)+/, "");
  const below = folder === "/" ? "/" : `${folder}/`;
  return path.startsWith(below) ? path.slice(below.length) : null;
}
