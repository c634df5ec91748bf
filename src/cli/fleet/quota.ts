/** Messages that are printed one by one up to a number, and only counted after that. */
export class Quota {
  readonly #max: number;
  #asked = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** True if it should be printed. */
  take(): boolean {
    this.#asked += 1;
    return this.#asked <= this.#max;
  }

  /** True once: with the first that is not printed. */
  get isJustExceeded(): boolean {
    return this.#asked === this.#max + 1;
  }

  /** How many were not printed. */
  get beyond(): number {
    return Math.max(0, this.#asked - this.#max);
  }
}
