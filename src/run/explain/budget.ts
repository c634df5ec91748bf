/** How many runs may still be looked at. Shared by a whole walk, since calls can branch at every level. */
export class Budget {
  readonly #max: number;
  #spent = 0;
  #cut = false;

  constructor(max: number) {
    this.#max = max;
  }

  /** False where nothing is left; it is remembered that something was left out. */
  take(): boolean {
    if (this.#spent >= this.#max) {
      this.#cut = true;
      return false;
    }
    this.#spent += 1;
    return true;
  }

  get spent(): number {
    return this.#spent;
  }

  get cut(): boolean {
    return this.#cut;
  }
}
