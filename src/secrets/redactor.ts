/** What stands where a secret stood. */
export const REDACTED = "[secret]";

/** A text without its secrets, as it comes: each answers with what can be told by then, the last with the rest. */
export interface RedactedPieces {
  add(piece: string): string;
  end(): string;
}

/**
 * Takes secrets out of what somebody else sees: an error of a server that repeats the key that it was sent, a model
 * that a hostile server plays. Whole values only: a server that encodes a secret in a way of its own is not outwitted,
 * and it has the secret anyway.
 */
export class Redactor {
  readonly #forms: readonly string[];
  /** The most characters that can still become a secret with the next piece of a text. */
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

  /** The same value with every text in it clean, names of fields among them. */
  value(value: unknown): unknown {
    if (typeof value === "string") return this.text(value);
    if (Array.isArray(value)) return value.map((item) => this.value(item));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, part]) => [this.text(name), this.value(part)]));
  }

  /** For a text that comes in pieces: the end of it is held back until it can be no part of a secret. */
  pieces(): RedactedPieces {
    let held = "";
    return {
      add: (piece) => {
        const clean = this.text(held + piece);
        const free = clean.length - this.#heldOf(clean);
        held = clean.slice(free);
        return clean.slice(0, free);
      },
      end: () => {
        const rest = held;
        held = "";
        return rest;
      },
    };
  }

  /** How many characters at the end of a text begin some form of a secret. */
  #heldOf(text: string): number {
    for (let length = Math.min(this.#held, text.length); length > 0; length -= 1) {
      const end = text.slice(-length);
      if (this.#forms.some((form) => form.startsWith(end))) return length;
    }
    return 0;
  }
}

/** As it is, and in the ways in which programs pass one on. */
function formsOf(secret: string): string[] {
  const json = JSON.stringify(secret).slice(1, -1);
  return [secret, json, encodeURIComponent(secret), Buffer.from(secret).toString("base64")];
}
