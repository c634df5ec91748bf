import { parseTemplate, type TemplatePart } from "../../declarations/terms/template-text.ts";
import { kindOf } from "../../declarations/yaml/shape.ts";
import { MAX_JSON_DEPTH, parseJson } from "../../json/parse-json.ts";
import type { ManifestItem } from "../model/item.ts";
import type { Outcome } from "./faults.ts";
import { fieldOf, textOfField } from "./item-fields.ts";

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
export function parseInputTemplate(raw: unknown): Outcome<InputTemplate> {
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
