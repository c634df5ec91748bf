/** How much disk space a directory tree takes. */
export interface TreeUsage {
  /** Blocks, and for every name at least one: an empty file is not free. */
  readonly bytes: number;
  readonly names: number;
  /** False if a folder could not be read, so that there is more than was counted. */
  readonly complete: boolean;
}

/** The least space that a name takes, in bytes. */
const LEAST_BYTES = 4096;
/** A block of `st_blocks` (stat(2)). */
const BLOCK_BYTES = 512;
/** How many files with several names are recognized; others count once for each name. */
const MAX_SHARED = 10_000;

/** Sums up a tree, name by name. */
export class UsageSum {
  readonly #enough: number;
  readonly #shared = new Set<string>();
  #bytes = 0;
  #names = 0;
  #complete = true;

  constructor(enough: number) {
    this.#enough = enough;
  }

  /** `sharedAs`: the identity of a file with several names; else null. */
  add(blocks: number, sharedAs: string | null): void {
    this.#names += 1;
    if (sharedAs !== null) {
      if (this.#shared.has(sharedAs)) return;
      if (this.#shared.size < MAX_SHARED) this.#shared.add(sharedAs);
    }
    this.#bytes += Math.max(LEAST_BYTES, blocks * BLOCK_BYTES);
  }

  leaveOut(): void {
    this.#complete = false;
  }

  get names(): number {
    return this.#names;
  }

  /** True if counting more would not change the decision. */
  get isEnough(): boolean {
    return this.#bytes > this.#enough;
  }

  usage(): TreeUsage {
    return { bytes: this.#bytes, names: this.#names, complete: this.#complete };
  }
}
