import type { ItemResult } from "../model/item.ts";

const MAX_RESULT_BYTES = 64 * 1024;
const MAX_MESSAGE_CHARACTERS = 4096;

/** `isWhole`: the output was not cut. */
export interface BoundedResult {
  readonly json: string;
  readonly isWhole: boolean;
}

/** A result as JSON of at most 64 KiB. An output that is too long is kept as text, cut, with a mark. */
export function boundedResult(result: ItemResult): BoundedResult {
  // The fields are those of the request.
  const { fields: _, error, ...rest } = result;
  const kept = { ...rest, error: error && { ...error, message: cut(error.message, MAX_MESSAGE_CHARACTERS) } };
  const json = JSON.stringify(kept);
  if (Buffer.byteLength(json) <= MAX_RESULT_BYTES) return { json, isWhole: true };
  const text = typeof kept.output === "string" ? kept.output : JSON.stringify(kept.output);
  // A character takes up to six bytes of JSON, so the text is shortened until it fits.
  for (let characters = MAX_RESULT_BYTES; characters >= 1; characters = Math.floor(characters * 0.8)) {
    const shorter = JSON.stringify({ ...kept, output: cut(text, characters) });
    if (Buffer.byteLength(shorter) <= MAX_RESULT_BYTES) return { json: shorter, isWhole: false };
  }
  return { json: JSON.stringify({ ...kept, output: cut(text, 0) }), isWhole: false };
}

function cut(text: string, characters: number): string {
  if (text.length <= characters) return text;
  return `${text.slice(0, characters).toWellFormed()}… (${text.length - characters} characters more)`;
}
