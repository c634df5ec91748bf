import { formsOf } from "./forms.ts";

/** Finds which of some secrets is in a content that arrives in pieces, in any known encoding. */
export class SecretSearch {
  readonly #forms: readonly (readonly [name: string, form: Buffer])[];
  /** So many bytes at the end of a piece may be the beginning of a secret. */
  readonly #kept: number;
  #end = Buffer.alloc(0);

  constructor(secrets: readonly (readonly [name: string, value: string])[]) {
    this.#forms = secrets.flatMap(([name, value]) =>
      [...new Set(formsOf(value))].map((form) => [name, Buffer.from(form)] as const),
    );
    this.#kept = Math.max(0, ...this.#forms.map(([, form]) => form.length - 1));
  }

  /** The name of a secret that ends in this piece, or null. */
  add(piece: Buffer): string | null {
    const bytes = Buffer.concat([this.#end, piece]);
    this.#end = bytes.subarray(Math.max(0, bytes.length - this.#kept));
    return this.#forms.find(([, form]) => bytes.includes(form))?.[0] ?? null;
  }
}
