import type { Redactor } from "../../secrets/redactor.ts";

/** Changes or checks a body that arrives in pieces. */
export interface BodyChange {
  /** What may be passed on so far. */
  add(piece: Buffer): Buffer;
  /** The rest; null if the body may not be passed on to its end. */
  end(): Buffer | null;
}

export const NOTHING = Buffer.alloc(0);

export function redacting(redactor: Redactor): BodyChange {
  const pieces = redactor.pieces();
  return {
    add: (piece) => Buffer.from(pieces.add(piece.toString("latin1")), "latin1"),
    end: () => Buffer.from(pieces.end(), "latin1"),
  };
}

/** One after the other. */
export function inTurn(changes: readonly BodyChange[]): BodyChange {
  return {
    add: (piece) => changes.reduce((bytes, change) => (bytes.length === 0 ? bytes : change.add(bytes)), piece),
    end() {
      let rest: Buffer = NOTHING;
      for (const change of changes) {
        const before = rest.length === 0 ? NOTHING : change.add(rest);
        const last = change.end();
        if (last === null) return null;
        rest = Buffer.concat([before, last]);
      }
      return rest;
    },
  };
}
