import { formsOf } from "./forms.ts";

/** The replacement for a secret. */
export const REDACTED = "[secret]";

/** Redacts a text that arrives in pieces. `add` returns what is certainly safe, `end` the rest. */
export interface RedactedPieces {
  add(piece: string): string;
  end(): string;
}

/**
 * Removes secrets from text that others see, such as an error of a server that repeats the key that it was sent. Only whole
 * values in known encodings are found: a hostile server can encode a secret in its own way, but it has the secret anyway.
 */
export class Redactor {
  readonly #forms: readonly string[];
  /** The most characters at the end of a piece that may be the beginning of a secret. */
  readonly #held: number;

  constructor(secrets: readonly string[]) {
    const forms = secrets.filter((secret) => secret !== "").flatMap(formsOf);
    // The longest first: a short form may be the beginning of a long one.
    this.#forms = [...new Set(forms)].toSorted((a, b) => b.length - a.length);
    this.#held = Math.max(0, ...this.#forms.map((form) => form.length - 1));
  }

  text(text: string): string {
    return this.#forms.reduce((clean, form) => clean.replaceAll(form, REDACTED), text);
  }

  /** The same value with all its texts and field names redacted. */
  value(value: unknown): unknown {
    if (typeof value === "string") return this.text(value);
    if (Array.isArray(value)) return value.map((item) => this.value(item));
    if (typeof value !== "object" || value === null || !isPlain(value)) return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [this.text(name), this.value(part)]));
  }

  /** The beginning of a text that continues, redacted: `held` is its end, which may be a part of a secret. */
  parted(text: string): { readonly free: string; readonly held: string } {
    const clean = this.text(text);
    const free = clean.length - this.#heldOf(clean);
    return { free: clean.slice(0, free), held: clean.slice(free) };
  }

  /** For a text that arrives in pieces: its end is held back until it cannot be part of a secret. */
  pieces(): RedactedPieces {
    let held = "";
    return {
      add: (piece) => {
        const parted = this.parted(held + piece);
        held = parted.held;
        return parted.free;
      },
      end: () => {
        const rest = held;
        held = "";
        return rest;
      },
    };
  }

  /** The number of characters at the end of a text that begin a secret. */
  #heldOf(text: string): number {
    for (let length = Math.min(this.#held, text.length); length > 0; length -= 1) {
      const end = text.slice(-length);
      if (this.#forms.some((form) => form.startsWith(end))) return length;
    }
    return 0;
  }
}

/** Bytes, dates and the like have no field names. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}
