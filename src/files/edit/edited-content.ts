import { isUtf8 } from "node:buffer";
import { EditError, FileTooLargeError } from "../../sandbox/errors.ts";
import { type Edit, MAX_EDIT_BYTES } from "../model/files.ts";
import { notText, unfit } from "../model/refusals.ts";
import { type ByteSource, readAll, utf16Of } from "../read/read-text.ts";

/** The most edits in one operation. */
const MAX_EDITS = 1000;
/** Limits on all edits of a call together, since searching blocks the process. */
const MAX_SEARCHED_CHARS = 2 * MAX_EDIT_BYTES;
const MAX_PLACES = 1_000_000;
/** The beginning of a text that was not found, which is searched for once more. */
const MAX_HINT_CHARS = 1000;
/** The most places of an ambiguous text that an error names. */
const SHOWN_LINES = 10;

/** Applies the edits in order, each to the result of the one before, and counts the places of each. If it throws `EditError`, nothing was applied. */
export function applyEdits(path: string, text: string, edits: readonly Edit[]): { text: string; places: number[] } {
  if (edits.length === 0 || edits.length > MAX_EDITS) {
    throw new EditError(path, `a call takes 1 to ${MAX_EDITS} edits, and this one has ${edits.length}.`);
  }
  let current = text;
  const places: number[] = [];
  let replacements = 0;
  let searched = 0;
  for (const [index, edit] of edits.entries()) {
    const which = edits.length === 1 ? "" : ` of edit ${index + 1}`;
    const { old, fresh } = withLineEndsOf(current, edit);
    if (old === "") throw new EditError(path, `the text to replace${which} is empty. Give the exact text.`);
    if (old === fresh) throw new EditError(path, `the old and the new text${which} are the same.`);
    searched += current.length + old.length;
    const parts = searched > MAX_SEARCHED_CHARS ? null : partsBetween(current, old, MAX_PLACES - replacements);
    if (parts === null)
      throw new EditError(path, "the edits search or replace too much text at once. Make several calls.");
    const found = parts.length - 1;
    if (found === 0) throw new EditError(path, notFound(current, old, which));
    if (found > 1 && edit.all !== true) throw new EditError(path, ambiguous(parts, old, found, which));
    // Checked after each edit: a few edits that double the text would otherwise fill the memory.
    if (current.length + found * (fresh.length - old.length) > MAX_EDIT_BYTES)
      throw new EditError(
        path,
        `it would be longer than ${MAX_EDIT_BYTES} bytes${which === "" ? "" : ` after${which.slice(3)}`}.`,
      );
    current = parts.join(fresh);
    replacements += found;
    places.push(found);
  }
  return { text: current, places };
}

/** Null if `old` occurs more than `max` times. */
function partsBetween(text: string, old: string, max: number): string[] | null {
  const parts: string[] = [];
  let from = 0;
  const places = placesIn(text, old, max + 1);
  if (places.length > max) return null;
  for (const place of places) {
    parts.push(text.slice(from, place));
    from = place + old.length;
  }
  return [...parts, text.slice(from)];
}

/** If every line of the file ends in CRLF, a bare newline in an edit means CRLF: models rarely see the difference. */
function withLineEndsOf(text: string, edit: Edit): { old: string; fresh: string } {
  const everyLineIsCrlf = text.includes("\r\n") && !/(?<!\r)\n/.test(text);
  const adapt = (part: string): string => (everyLineIsCrlf ? part.replace(/(?<!\r)\n/g, "\r\n") : part);
  return { old: adapt(edit.old), fresh: adapt(edit.new) };
}

function notFound(text: string, old: string, which: string): string {
  const bare = old.slice(0, MAX_HINT_CHARS).trim().split("\n")[0]?.trimEnd() ?? "";
  const near = bare === "" ? -1 : (placesIn(text, bare, 1)[0] ?? -1);
  const hint =
    near < 0
      ? "Read the file and copy the text exactly."
      : `Line ${lineAt(text, near)} begins the same way: compare white space and line ends, and copy the text exactly.`;
  return `the text to replace${which} was not found. ${hint}`;
}

function ambiguous(parts: readonly string[], old: string, found: number, which: string): string {
  const perOld = newlinesIn(old);
  const lines: number[] = [];
  let line = 1;
  for (const part of parts.slice(0, Math.min(found, SHOWN_LINES))) {
    line += newlinesIn(part);
    lines.push(line);
    line += perOld;
  }
  const more = found > SHOWN_LINES ? ", …" : "";
  const way = "Include more of the surrounding text to name one place, or replace all.";
  return `the text to replace${which} was found ${found} times (lines ${lines.join(", ")}${more}). ${way}`;
}

function lineAt(text: string, index: number): number {
  return newlinesIn(text.slice(0, index)) + 1;
}

function newlinesIn(text: string): number {
  return text.split("\n").length - 1;
}

/**
 * Finds `wanted`, which is not empty, in `text`, without overlaps. Uses Knuth-Morris-Pratt, whose time is linear: `indexOf`
 * is quadratic in the worst case, so a crafted text could block the process for hours.
 */
export function placesIn(text: string, wanted: string, max: number = Number.POSITIVE_INFINITY): number[] {
  const codes = codesOf(wanted);
  const fallback = fallbacksOf(codes);
  const places: number[] = [];
  let matched = 0;
  for (let at = 0; at < text.length && places.length < max; at += 1) {
    const code = text.charCodeAt(at);
    while (matched > 0 && code !== codes[matched]) matched = fallback[matched - 1] ?? 0;
    if (code === codes[matched]) matched += 1;
    if (matched < codes.length) continue;
    places.push(at + 1 - matched);
    matched = 0;
  }
  return places;
}

/** As numbers, of which each is compared many times. */
function codesOf(text: string): Uint16Array {
  const codes = new Uint16Array(text.length);
  for (let at = 0; at < text.length; at += 1) codes[at] = text.charCodeAt(at);
  return codes;
}

/** The failure function: for each prefix of the text, the length of its longest proper prefix that is also a suffix. */
function fallbacksOf(codes: Uint16Array): Int32Array {
  const fallback = new Int32Array(codes.length);
  let matched = 0;
  for (let at = 1; at < codes.length; at += 1) {
    const code = codes[at];
    while (matched > 0 && code !== codes[matched]) matched = fallback[matched - 1] ?? 0;
    if (code === codes[matched]) matched += 1;
    fallback[at] = matched;
  }
  return fallback;
}

export interface EditedContent {
  readonly bytes: Buffer;
  readonly replacements: number;
  /** In how many places each edit was applied. */
  readonly places: readonly number[];
}

const UTF_16 = "it is UTF-16 text, and only UTF-8 can be edited. Read it, and write it anew as a whole.";

/** The content of an opened text file after the edits. A byte order mark is kept. */
export async function editedContent(source: ByteSource, path: string, edits: readonly Edit[]): Promise<EditedContent> {
  if (source.size > MAX_EDIT_BYTES) throw new FileTooLargeError(path, source.size, MAX_EDIT_BYTES);
  const whole = await readAll(source);
  if (utf16Of(whole) !== null) throw unfit("edit", path, UTF_16);
  if (!isUtf8(whole)) throw notText(path, null);
  const { text, places } = applyEdits(path, whole.toString(), edits);
  const bytes = Buffer.from(text);
  if (bytes.length > MAX_EDIT_BYTES) throw new FileTooLargeError(path, bytes.length, MAX_EDIT_BYTES);
  return { bytes, replacements: places.reduce((all, one) => all + one, 0), places };
}
