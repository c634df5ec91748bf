/** A longer line is cut, and says how much is missing. */
const MAX_LINE = 4096;

/** Text that a worker chose on one line: what could move a cursor or hide something becomes its code. Tabs stay. */
export function visible(text: string): string {
  const shown = text.length > MAX_LINE ? `${text.slice(0, MAX_LINE)}… ${text.length - MAX_LINE} characters more` : text;
  return shown.replace(/(?!\t)[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, codeOf);
}

/** A name as it is where it is harmless, else quoted, so that it can neither be taken for two nor for other words. */
export function visibleName(text: string): string {
  if (/^[^\p{C}\p{Z}"'\\]+( [^\p{C}\p{Z}"'\\]+)*$/u.test(text)) return text;
  return `"${text.replace(/["\\]/g, "\\$&").replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, codeOf)}"`;
}

function codeOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}
