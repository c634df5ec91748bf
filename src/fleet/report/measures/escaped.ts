/** How much of a text that a worker or a manifest chose stands in a page. */
export const LONGEST = { key: 200, message: 500, word: 80 } as const;

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/**
 * Text for a page, as an element's content or a quoted attribute: markup stays text, control and formatting characters,
 * which could reverse the order of what is read, become their codes, and what is too long is cut.
 */
export function escaped(text: string, max: number = LONGEST.message): string {
  const shown = withoutControls(shortened(text, max).replace(/\r\n?|\n/g, " "));
  return shown.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? "");
}

/** At most `max` characters, the last of them a mark where something is missing. */
export function shortened(text: string, max: number): string {
  return text.length > max ? `${text.slice(0, max - 1).replace(/[\ud800-\udbff]$/, "")}…` : text;
}

/** Control and formatting characters as their codes, line breaks and tabs among them unless they are kept. */
export function withoutControls(text: string, keep = ""): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) =>
    keep.includes(character) ? character : `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`,
  );
}
