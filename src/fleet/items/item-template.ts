import { parseTemplate, type TemplatePart } from "../../declarations/terms/template-text.ts";
import { kindOf } from "../../declarations/yaml/shape.ts";
import { MAX_JSON_DEPTH, parseJson } from "../../json/parse-json.ts";
import type { ItemTemplate, ManifestItem } from "../model/item.ts";
import { type AttachmentTemplate, parseAttachmentTemplate } from "./attachment-template.ts";
import { Faults, type Outcome, TemplateError } from "./faults.ts";
import { fieldOf, textOfField } from "./item-fields.ts";
import type { PathTemplate } from "./path-template.ts";
import { parseVirtualTemplate } from "./virtual-template.ts";

/** A worker's input with fields in its strings. */
export type InputTemplate = (item: ManifestItem) => Outcome<unknown>;

/** The largest input of one item. A template may name a long field many times. */
const MAX_INPUT_BYTES = 2 * 1024 * 1024;
/** A character becomes at most six bytes of JSON, so shorter inputs need no exact check. */
const SURELY_FITS_CHARS = MAX_INPUT_BYTES / 16;

/**
 * Parses JSON text, or takes a JSON value. The JSON is parsed before its strings are filled, so that no value can break out of
 * its string. A string that is exactly one field keeps the field's type. Keys are not templates.
 */
function parseInputTemplate(raw: unknown): Outcome<InputTemplate> {
  const parsed = typeof raw === "string" ? parseInputText(raw) : { ok: true as const, value: raw };
  if (!parsed.ok) return { ok: false, fault: `is not JSON: ${parsed.problem}` };
  try {
    const fill = fillerOf(parsed.value, 0);
    return { ok: true, value: (item) => filled(fill, item) };
  } catch (error) {
    return faultOf(error);
  }
}

/** `{meta}` alone is not JSON and can only mean that field. */
function parseInputText(raw: string): ReturnType<typeof parseJson> {
  return /^\s*\{[^{}"]*[^{}"\s][^{}"]*\}\s*$/.test(raw) ? { ok: true, value: raw.trim() } : parseJson(raw);
}

/** Carries a fault up the tree; does not leave this file. */
class InputFault extends Error {
  readonly ofTemplate: boolean;

  constructor(message: string, ofTemplate = false) {
    super(message);
    this.ofTemplate = ofTemplate;
  }
}

function faultOf(error: unknown): Extract<Outcome<never>, { ok: false }> {
  if (error instanceof InputFault) return { ok: false, fault: error.message, ofTemplate: error.ofTemplate };
  throw error;
}

interface Filling {
  readonly item: ManifestItem;
  /** Characters of the fields used so far. */
  chars: number;
}

type Fill = (filling: Filling) => unknown;

function filled(fill: Fill, item: ManifestItem): Outcome<unknown> {
  const filling = { item, chars: 0 };
  try {
    const value = fill(filling);
    const fits = filling.chars <= SURELY_FITS_CHARS || Buffer.byteLength(JSON.stringify(value)) <= MAX_INPUT_BYTES;
    return fits ? { ok: true, value } : { ok: false, fault: TOO_LARGE };
  } catch (error) {
    return faultOf(error);
  }
}

function fillerOf(value: unknown, depth: number): Fill {
  if (depth > MAX_JSON_DEPTH) throw new InputFault(`is nested more than ${MAX_JSON_DEPTH} levels deep`);
  if (typeof value === "string") return textFiller(value);
  if (Array.isArray(value)) {
    const each = value.map((inner) => fillerOf(inner, depth + 1));
    return (filling) => each.map((fill) => fill(filling));
  }
  if (value === null || typeof value === "boolean" || Number.isFinite(value)) return () => value;
  if (kindOf(value) !== "map" || typeof value !== "object") throw new InputFault("has a value that is not JSON");
  const each = Object.entries(value).map(([key, inner]) => [key, fillerOf(inner, depth + 1)] as const);
  return (filling) => Object.fromEntries(each.map(([key, fill]) => [key, fill(filling)]));
}

function textFiller(raw: string): Fill {
  const parsed = parseTemplate(raw);
  const shown = JSON.stringify(raw.slice(0, 100));
  if (!parsed.ok) throw new InputFault(`${shown} ${parsed.fault}`);
  const [only, ...further] = parsed.parts;
  if (only !== undefined && "field" in only && further.length === 0)
    return (filling) => wholeField(filling, only.field, shown);
  return (filling) => parsed.parts.map((part) => textOfPart(filling, part, shown)).join("");
}

/** `shown`: the text of the template, for messages. */
function wholeField(filling: Filling, name: string, shown: string): unknown {
  const field = fieldOf(filling.item, name);
  if (!field.ok) throw new InputFault(`${shown}: ${field.fault}`, field.ofTemplate);
  const { value = null } = field;
  take(filling, typeof value === "string" ? value.length : JSON.stringify(value).length);
  return value;
}

function textOfPart(filling: Filling, part: TemplatePart, shown: string): string {
  if ("text" in part) return part.text;
  const field = textOfField(filling.item, part.field);
  if (!field.ok) throw new InputFault(`${shown}: ${field.fault}`, field.ofTemplate);
  take(filling, field.value.length);
  return field.value;
}

function take(filling: Filling, chars: number): void {
  filling.chars += chars;
  if (filling.chars > MAX_INPUT_BYTES) throw new InputFault(TOO_LARGE);
}

const TOO_LARGE = `is more than ${MAX_INPUT_BYTES} bytes of JSON; pass large data as a file`;

/** A parsed item template. Null: not given. */
export interface ParsedItemTemplate {
  readonly attach: readonly Named<AttachmentTemplate>[];
  readonly allowRead: readonly Named<PathTemplate>[] | null;
  readonly allowWrite: readonly Named<PathTemplate>[] | null;
  readonly input: InputTemplate | null;
  readonly key: readonly TemplatePart[] | null;
}

/** A template and its name in messages: `attach {path}`. */
export interface Named<Template> {
  readonly about: string;
  readonly template: Template;
}

const MAX_PATHS = 100;

/** Throws a `TemplateError` with all faults of the template that do not depend on items. */
export function parseItemTemplate({
  attach = [],
  allowRead,
  allowWrite,
  input,
  key,
}: ItemTemplate): ParsedItemTemplate {
  const faults = new Faults();
  const parsed: ParsedItemTemplate = {
    attach: parseAll("attach", attach, parseAttachmentTemplate, faults),
    allowRead: allowRead === undefined ? null : parseAll("allow_read", allowRead, parseVirtualTemplate, faults),
    allowWrite: allowWrite === undefined ? null : parseAll("allow_write", allowWrite, parseVirtualTemplate, faults),
    input: input === undefined ? null : faults.valueOf("input", mistaken(parseInputTemplate(input))),
    key: key === undefined ? null : faults.valueOf(`key ${key}`, mistaken(parseKey(key))),
  };
  if (faults.ofTemplate.length > 0) throw new TemplateError(faults.ofTemplate);
  return parsed;
}

function parseAll<Template>(
  kind: string,
  raws: readonly string[],
  parse: (raw: string) => Outcome<Template>,
  faults: Faults,
): Named<Template>[] {
  const tooMany = `${raws.length} are given; at most ${MAX_PATHS} are allowed`;
  if (raws.length > MAX_PATHS) faults.valueOf(kind, mistaken({ ok: false, fault: tooMany }));
  return raws.slice(0, MAX_PATHS).flatMap((raw) => {
    const about = `${kind} ${raw}`;
    const template = faults.valueOf(about, mistaken(raw === "" ? { ok: false, fault: "is empty" } : parse(raw)));
    return template === null ? [] : [{ about, template }];
  });
}

function parseKey(raw: string): Outcome<readonly TemplatePart[]> {
  const parsed = parseTemplate(raw);
  return parsed.ok ? { ok: true, value: parsed.parts } : parsed;
}

/** Every fault that is found without an item is the template's. */
function mistaken<Value>(outcome: Outcome<Value>): Outcome<Value> {
  return outcome.ok ? outcome : { ...outcome, ofTemplate: true };
}
