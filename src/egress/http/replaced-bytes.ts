import type { BodyChange } from "./body-change.ts";

export interface Replacement {
  readonly from: string;
  readonly to: string;
}

/** Replaces texts, also those that are cut into pieces. Of two that begin alike the longer one must come first. */
export function replacing(replacements: readonly Replacement[]): BodyChange {
  const longest = Math.max(0, ...replacements.map(({ from }) => from.length));
  let held = "";
  return {
    add(piece) {
      const text = held + piece.toString("latin1");
      const clean = replacedText(text, replacements);
      const kept = beginningAtEnd(clean, replacements, longest);
      held = clean.slice(clean.length - kept);
      return Buffer.from(clean.slice(0, clean.length - kept), "latin1");
    },
    end() {
      const rest = Buffer.from(held, "latin1");
      held = "";
      return rest;
    },
  };
}

export function replacedText(text: string, replacements: readonly Replacement[]): string {
  return replacements.reduce((changed, { from, to }) => changed.replaceAll(from, to), text);
}

/** How many characters at the end of a text begin one of the texts. */
function beginningAtEnd(text: string, replacements: readonly Replacement[], longest: number): number {
  for (let length = Math.min(longest - 1, text.length); length > 0; length -= 1) {
    const end = text.slice(-length);
    if (replacements.some(({ from }) => from.startsWith(end))) return length;
  }
  return 0;
}
