import { parseJson } from "../json/parse-json.ts";

export type FinalOutput = (
  | { readonly ok: true; readonly value: unknown }
  /** `fault` tells the model what to correct. */
  | { readonly ok: false; readonly fault: string }
) & {
  /** The answer's text; if it contained an escaped key, the same JSON without the key. */
  readonly text: string;
};

/** How a value differs from the schema, or null. */
export type Mismatch = (value: unknown) => string | null | Promise<string | null>;

/**
 * Parses an answer as JSON. `redactValue` removes the provider's key again, because parsing escapes can reveal a key that the
 * text did not contain literally.
 */
export async function finalOutput(
  text: string,
  mismatch: Mismatch,
  redactValue: (value: unknown) => unknown,
): Promise<FinalOutput> {
  const json = unfenced(text.trim());
  const parsed = parseJson(json);
  if (!parsed.ok) return { ok: false, text, fault: `it is not valid JSON: ${parsed.problem}` };
  const read = parsed.value;
  const value = redactValue(read);
  const clean = JSON.stringify(value);
  // Parsing the text again would reveal the same key.
  const said = clean === JSON.stringify(read) ? text : clean;
  const fault = await mismatch(value);
  return fault === null
    ? { ok: true, text: said, value }
    : { ok: false, text: said, fault: `it does not match the schema: ${fault}` };
}

const FENCE = "```";
const FIRST_LINE = /^```(?:json)?[ \t]*\n/i;

/** Models often put JSON between fences. The end is not matched by a regular expression, which an answer could make slow. */
function unfenced(text: string): string {
  const [first] = FIRST_LINE.exec(text) ?? [];
  const isFenced = first !== undefined && text.endsWith(FENCE) && text.length >= first.length + FENCE.length;
  return isFenced ? text.slice(first.length, -FENCE.length) : text;
}
