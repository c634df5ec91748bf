import { createHash, type Hash } from "node:crypto";
import { type BodyChange, NOTHING } from "./body-change.ts";

/** Compares a file with its digests on its way. Its last piece is held back, so that a wrong file is never complete. */
export class CheckedFile implements BodyChange {
  readonly #digests: readonly string[];
  readonly #hashes: ReadonlyMap<string, Hash>;
  #held: Buffer = NOTHING;

  /** Each digest is `sha512-BASE64`, as in Subresource Integrity; any of them must match. */
  constructor(digests: readonly string[]) {
    this.#digests = digests;
    const algorithms = new Set(digests.map((digest) => digest.slice(0, digest.indexOf("-"))));
    const known = [...algorithms].filter((name) => ["sha256", "sha384", "sha512"].includes(name));
    this.#hashes = new Map(known.map((name) => [name, createHash(name)]));
  }

  /** The piece before this one. */
  add(piece: Buffer): Buffer {
    for (const hash of this.#hashes.values()) hash.update(piece);
    const before = this.#held;
    this.#held = piece;
    return before;
  }

  /** The last piece; null if the file is another one. */
  end(): Buffer | null {
    const found = [...this.#hashes].map(([name, hash]) => `${name}-${hash.digest("base64")}`);
    return found.some((digest) => this.#digests.includes(digest)) ? this.#held : null;
  }
}
