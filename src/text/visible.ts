/**
 * What a person sees of a text that a worker, a file or a machine chose. All faces use this: nothing of such a text is hidden, and nothing
 * of it changes the order in which the rest is read. `python/src/corral/_visible.py` is the same for the Python client; a test compares them.
 */

/** A longer line of a diff is cut, with the number of missing characters. */
export const MAX_LINE = 4096;

/**
 * What has no mark of its own: control and format characters, tags and selectors, letters that are drawn as nothing, lone surrogates, what
 * no font knows (private, unassigned), and all blanks but the plain one. The last eight are drawn as nothing, but Unicode has no class for them.
 */
const HIDDEN = String.raw`(?! )[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Z}\p{Default_Ignorable_Code_Point}\u2800\ufffc\u{1107f}\u{13441}\u{13442}\u{16fe4}\u{1d159}\u{1da8c}]`;
/** Marks stack on a letter or digit. What is above four is drawn over other lines, and no writing needs it. */
const MOST_MARKS = 4;
const HIDDEN_OR_MARKS = new RegExp(String.raw`(${HIDDEN})|(?:(?!${HIDDEN})\p{M})+`, "gu");
const ALL_HIDDEN = new RegExp(HIDDEN, "gu");
const BASE = new RegExp(String.raw`(?!${HIDDEN})[\p{L}\p{N}]$`, "u");
const PLAIN = /^[\x20-\x7e]*$/;
/** The blocks of writings that run from right to left, with their digits. */
const RIGHT_TO_LEFT = String.raw`[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]`;
const IS_RIGHT_TO_LEFT = new RegExp(RIGHT_TO_LEFT, "u");
const DIRECTIONS = new RegExp(
  String.raw`((?:${RIGHT_TO_LEFT}\p{M}*)+)|((?:(?!${RIGHT_TO_LEFT})\p{Nd})+)|(?:(?!${RIGHT_TO_LEFT})\p{L})+`,
  "gu",
);

/**
 * Letters that run from right to left. `kept`: what draws the text forces its order. `line`: a whole line; `piece`: a text that stands beside
 * others on a line. In both, such letters stay where no terminal can move anything by them: each word of them is enclosed by letters that run
 * from left to right, with no digit behind it, or the line has nothing else. All others become codes: a terminal may obey no mark that would
 * force an order, and most have none. `none`: all become codes. `stream`: what a worker prints as it comes, cut anywhere: its lines are its own,
 * so only what is hidden becomes codes, and marks stay.
 */
type Order = "kept" | "stream" | "line" | "piece" | "none";

/** A part of a text. `isHidden`: a character that could not be seen, by its code. */
export interface Part {
  readonly text: string;
  readonly isHidden: boolean;
}

/** For what forces the order itself. Line breaks and tabs stay as they are. */
export function visibleParts(text: string): Part[] {
  const parts: Part[] = [];
  let from = 0;
  const add = (to: number): void => {
    if (to > from) parts.push({ text: text.slice(from, to), isHidden: false });
  };
  for (const { 0: found, 1: hidden, index } of PLAIN.test(text) ? [] : text.matchAll(HIDDEN_OR_MARKS)) {
    const seen = hidden === undefined ? seenMarks(found, text, index) : 0;
    if (seen === found.length || hidden === "\n" || hidden === "\t") continue;
    add(index + seen);
    parts.push({ text: codesOf(found.slice(seen)), isHidden: true });
    from = index + found.length;
  }
  add(text.length);
  return parts;
}

/** As one text of whole lines, safe to print. `keep`: characters that stay though they have no mark. */
export function printable(text: string, keep = "\n", order: Order = "line"): string {
  return shown(text, keep, order);
}

/** A part of a line, of at most `max` characters. */
export function printableLine(text: string, max = 200): string {
  const line = shown(text.slice(0, max * 4).replaceAll("\n", " "), "", "piece");
  return line.length > max ? clipped(shown(line, "", "none"), max) : line;
}

/** A line of a file: tabs stay. */
export function visibleLine(text: string): string {
  const cut = text.length > MAX_LINE ? `${text.slice(0, MAX_LINE)}… ${text.length - MAX_LINE} characters more` : text;
  return shown(cut, "\t", "line");
}

/** The same for a line that is broken in parts afterwards: nothing in it runs from right to left. */
export function unidirectional(text: string): string {
  return shown(text, "\n\t", "none");
}

/** A name, quoted unless it is harmless, so that it cannot be mistaken for two names, for other words, or for another name. */
export function visibleName(text: string, order: "kept" | "piece" = "piece"): string {
  const name = shown(text, "", order);
  if (name === text && /^[^ "'\\]+( [^ "'\\]+)*$/.test(text)) return text;
  return `"${shown(text.replace(/["\\]/g, "\\$&"), "", order)}"`;
}

/**
 * JSON for a terminal: what is hidden in its strings is escaped. A parser gets the original text. Line breaks between values stay.
 */
export function escapedJson(json: string): string {
  // A character beyond the first 65,536 is two code units in JSON.
  return shown(json, "\n", "piece", (character) =>
    Array.from(
      { length: character.length },
      (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`,
    ).join(""),
  );
}

/** The first characters of a text, without half of a pair. Cut text ends with `…`. */
export function clipped(text: string, maxChars: number): string {
  return text.length <= maxChars ? text : `${text.slice(0, maxChars - 1).replace(/[\uD800-\uDBFF]$/, "")}…`;
}

/** Every character that is not ASCII by its code: to point out what else looks the same. */
export function asciiOnly(text: string): string {
  return text.replace(/[^\x20-\x7e]/gu, codeOf);
}

/** Nothing is left of what has no mark of its own. */
export function withoutHidden(text: string): string {
  return PLAIN.test(text) ? text : text.replace(ALL_HIDDEN, "");
}

function shown(text: string, keep: string, order: Order, code = codeOf): string {
  if (PLAIN.test(text)) return text;
  const visible = text.replace(HIDDEN_OR_MARKS, (found, hidden: string | undefined, index: number) => {
    if (hidden !== undefined) return keep.includes(hidden) ? hidden : code(hidden);
    const seen = order === "stream" ? found.length : seenMarks(found, text, index);
    return seen === found.length ? found : found.slice(0, seen) + codesOf(found.slice(seen), code);
  });
  if (order === "kept" || order === "stream" || !IS_RIGHT_TO_LEFT.test(visible)) return visible;
  return visible
    .split("\n")
    .map((line) => inOrder(line, order, code))
    .join("\n");
}

/** How many of these marks are shown on what is before them. On nothing, or on what is hidden, none. */
function seenMarks(marks: string, text: string, index: number): number {
  if (!BASE.test(text.slice(Math.max(0, index - 2), index))) return 0;
  return marks.length <= MOST_MARKS ? marks.length : [...marks].slice(0, MOST_MARKS).join("").length;
}

function inOrder(line: string, order: Order, code: (character: string) => string): string {
  const words = [...line.matchAll(DIRECTIONS)];
  const isPure = words.every(([text, isBack]) => isBack !== undefined && !/\p{Nd}/u.test(text));
  if (order === "line" && isPure) return line;
  const coded = new Set<number>();
  // Whether a letter that runs from left to right was seen since the last word that does not, and that word while nothing has followed it.
  let isEnclosed = false;
  let open: number | null = null;
  for (const [at, [text, back, digits]] of words.entries()) {
    if (back === undefined && digits === undefined) [isEnclosed, open] = [true, null];
    else if (open !== null) {
      coded.add(open);
      [isEnclosed, open] = [true, null];
    }
    if (back === undefined) continue;
    if (order === "none" || !isEnclosed || /\p{Nd}/u.test(text)) {
      coded.add(at);
      isEnclosed = true;
    } else [isEnclosed, open] = [false, at];
  }
  if (open !== null) coded.add(open);
  let at = -1;
  return line.replace(DIRECTIONS, (word) => (coded.has(++at) ? codesOf(word, code) : word));
}

function codesOf(text: string, code = codeOf): string {
  return Array.from(text, code).join("");
}

function codeOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

/** Several that have one name, as the containers of one service have, are told apart by their ids. */
export function toldApart(all: readonly { readonly id: string; readonly name: string }[]): (id: string) => string {
  const counts = new Map<string, number>();
  for (const { name } of all) counts.set(name, (counts.get(name) ?? 0) + 1);
  const names = new Map(
    all.map(({ id, name }) => [id, (counts.get(name) ?? 0) > 1 ? `${name} (${id.slice(0, 4)})` : name]),
  );
  return (id) => names.get(id) ?? id;
}

/** One word as a POSIX shell reads it, in quotes only if it needs them: for commands that messages print. */
export function shellWord(text: string): string {
  return /^[\w@%+:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
