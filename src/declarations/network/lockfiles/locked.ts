/** What a lock file names. */
export interface Locked {
  /** Files, by the registry that has them, and with all contents that they may have. */
  readonly files: readonly LockedFile[];
  /** What a tool reads to find the files. Only these paths, and their contents are not known. */
  readonly indexes: readonly { readonly registry: string; readonly path: string }[];
}

export interface LockedFile {
  /** The `url` of its registry. */
  readonly registry: string;
  /** As in `Artifact`. */
  readonly path: string;
  readonly digests: readonly string[];
}

export type LockParse =
  | { readonly ok: true; readonly locked: Locked }
  | { readonly ok: false; readonly faults: readonly LockFault[] };

/** What is wrong with one entry. */
export interface LockFault {
  /** From 1. */
  readonly line: number;
  /** The entry, as the file names it; empty for the file as a whole. */
  readonly entry: string;
  /** Follows the entry. It repeats no content of the file, which may be any file of this machine. */
  readonly message: string;
}

/** Files and entries beyond these are a mistake, or meant to exhaust Corral. */
export const MAX_LOCK_BYTES = 32 * 1024 * 1024;
export const MAX_LOCK_ENTRIES = 20_000;
/** Paths of indexes are compared one by one. */
const MAX_LOCK_INDEXES = 5000;
/** After this many the others are not reported. */
const MAX_FAULTS = 20;

/** Collects what is wrong, and ends with it or with what is locked. */
export class LockReading {
  readonly #faults: LockFault[] = [];
  #unreported = 0;

  fault(line: number, entry: string, message: string): void {
    if (this.#faults.length < MAX_FAULTS) this.#faults.push({ line, entry: entry.slice(0, 200), message });
    else this.#unreported += 1;
  }

  end(locked: Locked): LockParse {
    if (locked.indexes.length > MAX_LOCK_INDEXES)
      this.fault(1, "", `needs ${locked.indexes.length} indexes of packages; at most ${MAX_LOCK_INDEXES} are taken`);
    if (this.#unreported > 0)
      this.#faults.push({ line: 1, entry: "", message: `has ${this.#unreported} further entries that are refused` });
    return this.#faults.length > 0 ? { ok: false, faults: this.#faults } : { ok: true, locked };
  }
}

/** A file that is refused as a whole. */
export function refusedFile(message: string, line = 1): LockParse {
  return { ok: false, faults: [{ line, entry: "", message }] };
}

const BYTES: Readonly<Record<string, number>> = { sha256: 32, sha384: 48, sha512: 64 };

/** `sha256-BASE64`; null if it is not a digest that can be relied on. `encoding`: that of `value`. */
export function digestOf(algorithm: string, value: string, encoding: "hex" | "base64"): string | null {
  const bytes = Buffer.from(value, encoding);
  const isExact = bytes.toString(encoding) === (encoding === "hex" ? value.toLowerCase() : value);
  return isExact && bytes.length === BYTES[algorithm] ? `${algorithm}-${bytes.toString("base64")}` : null;
}

/** The line at an offset. */
export function lineAt(text: string, offset: number): number {
  return text.slice(0, Math.max(0, offset)).split("\n").length;
}
