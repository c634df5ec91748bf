import type { Redactor } from "../../secrets/read-secret.ts";

/** Changes or checks a body that arrives in pieces. */
export interface BodyChange {
  /** What may be passed on so far. */
  add(piece: Buffer): Buffer;
  /** The rest; null if the body may not be passed on to its end. */
  end(): Buffer | null;
}

export const EMPTY_BODY = Buffer.alloc(0);

export function redacting(redactor: Redactor): BodyChange {
  const pieces = redactor.pieces();
  return {
    add: (piece) => Buffer.from(pieces.add(piece.toString("latin1")), "latin1"),
    end: () => Buffer.from(pieces.end(), "latin1"),
  };
}

/** One after the other. */
export function chained(changes: readonly BodyChange[]): BodyChange {
  return {
    add: (piece) => changes.reduce((bytes, change) => (bytes.length === 0 ? bytes : change.add(bytes)), piece),
    end() {
      let rest: Buffer = EMPTY_BODY;
      for (const change of changes) {
        const before = rest.length === 0 ? EMPTY_BODY : change.add(rest);
        const last = change.end();
        if (last === null) return null;
        rest = Buffer.concat([before, last]);
      }
      return rest;
    },
  };
}

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
