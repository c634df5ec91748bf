import { clipped, printable } from "../../../text/visible.ts";

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
  const shown = printable(clipped(text, max).replace(/\r\n?|\n/g, " "), "", "piece");
  return shown.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? "");
}
