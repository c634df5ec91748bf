/** A part of a text that a worker chose. `isHidden`: a character that could not be seen, by its code. */
export interface Part {
  readonly text: string;
  readonly isHidden: boolean;
}

/**
 * What has no mark of its own, or changes the order in which the rest is read: controls, formatting characters (bidi, zero width, tags),
 * lone surrogates, separators of lines, and letters that are drawn as blanks. The selectors for coloured emoji stay.
 */
const HIDDEN = /(?![\uFE0E\uFE0F])(?:[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]|\p{Default_Ignorable_Code_Point}|\u2800)/u;
const HIDDEN_ALL = new RegExp(HIDDEN.source, "gu");

/** Splits a text so that nothing in it is invisible. Line breaks and tabs stay as they are. */
export function visibleParts(text: string): Part[] {
  if (!HIDDEN.test(text)) return text === "" ? [] : [{ text, isHidden: false }];
  const parts: Part[] = [];
  let from = 0;
  for (const { 0: character, index } of text.matchAll(HIDDEN_ALL)) {
    if (character === "\n" || character === "\t") continue;
    if (index > from) parts.push({ text: text.slice(from, index), isHidden: false });
    parts.push({ text: codeOf(character), isHidden: true });
    from = index + character.length;
  }
  if (from < text.length) parts.push({ text: text.slice(from), isHidden: false });
  return parts;
}

/** The same as one text, for what takes no elements: titles and labels. */
export function visibleText(text: string): string {
  return visibleParts(text)
    .map((part) =>
      part.isHidden
        ? `\\u{${part.text
            .slice(2)
            .replace(/^0+(?=.)/, "")
            .toLowerCase()}}`
        : part.text,
    )
    .join("");
}

function codeOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The first characters of a text, without half of a pair. */
export function clipped(text: string, maxChars: number): string {
  if (text.length <= maxChars) return text;
  return `${text.slice(0, maxChars - 1).replace(/[\uD800-\uDBFF]$/, "")}…`;
}
