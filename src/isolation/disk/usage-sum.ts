/** What a directory tree takes on the disk. */
export interface TreeUsage {
  /** Blocks, and for every name at least one: an empty file is not free. */
  readonly bytes: number;
  readonly names: number;
  /** False where a folder could not be looked into, so that there is more than was counted. */
  readonly complete: boolean;
}

/** What a file system gives a name at the least, in bytes. */
const LEAST_BYTES = 4096;
/** A block of `st_blocks` (stat(2)). */
const BLOCK_BYTES = 512;
/** Of files with several names, how many are told apart; others count once for each name. */
const MAX_SHARED = 10_000;

/** Adds up a tree, name by name. */
export class UsageSum {
  readonly #enough: number;
  readonly #shared = new Set<string>();
  #bytes = 0;
  #names = 0;
  #complete = true;

  constructor(enough: number) {
    this.#enough = enough;
  }

  /** `sharedAs`: what a file with other names is told apart by; null where it has none. */
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

  /** True where more would not change what is made of it. */
  get isEnough(): boolean {
    return this.#bytes > this.#enough;
  }

  usage(): TreeUsage {
    return { bytes: this.#bytes, names: this.#names, complete: this.#complete };
  }
}
