import { isTooDeep, MAX_JSON_DEPTH } from "../json/parse-json.ts";

export type FinalOutput = (
  | { readonly ok: true; readonly value: unknown }
  /** `fault` tells the model what to mend. */
  | { readonly ok: false; readonly fault: string }
) & {
  /** What was answered; where a key was in it behind escapes, the same JSON without it. */
  readonly text: string;
};

/** What of a value is not as asked, or null. */
export type Mismatch = (value: unknown) => string | null | Promise<string | null>;

/**
 * The JSON that an answer is. `mismatch` says what of it is not as asked, or null; `redactValue` is the model's: what reads
 * escapes brings a key to light that is in no text.
 */
export async function finalOutput(
  text: string,
  mismatch: Mismatch,
  redactValue: (value: unknown) => unknown,
): Promise<FinalOutput> {
  const json = unfenced(text.trim());
  let read: unknown;
  try {
    read = JSON.parse(json);
  } catch (error) {
    return { ok: false, text, fault: `it is not JSON alone: ${(error as Error).message}` };
  }
  if (isTooDeep(read)) return { ok: false, text, fault: `it is nested more than ${MAX_JSON_DEPTH} levels deep` };
  const value = redactValue(read);
  const clean = JSON.stringify(value);
  // Who reads the text reads the same key out of it.
  const said = clean === JSON.stringify(read) ? text : clean;
  const fault = await mismatch(value);
  return fault === null
    ? { ok: true, text: said, value }
    : { ok: false, text: said, fault: `it does not match the schema: ${fault}` };
}

const FENCE = "```";
const FIRST_LINE = /^```(?:json)?[ \t]*\n/i;

/** Models like to put JSON between fences. No expression looks for the end: an answer may be made to take it for ever. */
function unfenced(text: string): string {
  const [first] = FIRST_LINE.exec(text) ?? [];
  const isFenced = first !== undefined && text.endsWith(FENCE) && text.length >= first.length + FENCE.length;
  return isFenced ? text.slice(first.length, -FENCE.length) : text;
}
