/** A longer line is cut, with the number of missing characters. */
export const MAX_LINE = 4096;

/** A worker's text as one safe line: characters that could move the cursor or hide text become escapes. Tabs are kept. */
export function visible(text: string): string {
  const shown = text.length > MAX_LINE ? `${text.slice(0, MAX_LINE)}… ${text.length - MAX_LINE} characters more` : text;
  return shown.replace(/(?!\t)[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, codeOf);
}

/** A name, quoted unless it is harmless, so that it cannot be mistaken for two names or for other words. */
export function visibleName(text: string): string {
  if (/^[^\p{C}\p{Z}"'\\]+( [^\p{C}\p{Z}"'\\]+)*$/u.test(text)) return text;
  return `"${text.replace(/["\\]/g, "\\$&").replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, codeOf)}"`;
}

function codeOf(character: string): string {
  return `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}
