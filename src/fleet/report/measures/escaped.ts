/** The most characters that a page shows of texts from a worker or a manifest. */
export const LONGEST = { key: 200, message: 500, word: 80 } as const;

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/**
 * Text for a page, as element content or in a quoted attribute: markup is escaped, control and formatting characters (which
 * could reverse the reading order) become their codes, and long text is cut.
 */
export function escaped(text: string, max: number = LONGEST.message): string {
  const shown = withoutControls(shortened(text, max).replace(/\r\n?|\n/g, " "));
  return shown.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? "");
}

/** At most `max` characters; cut text ends with `…`. */
export function shortened(text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max - 1).replace(/[\ud800-\udbff]$/, "")}…` : text;
}

/** Replaces control and formatting characters by their codes, except those in `keep`. */
export function withoutControls(text: string, keep = ""): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) =>
    keep.includes(character) ? character : `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}
