/** One stretch of time and what fell into it, by series. */
export interface TimeBin {
  readonly fromMs: number;
  readonly toMs: number;
  readonly amounts: readonly number[];
}

/**
 * Amounts over time, in a bounded number of bins whatever the stretch of time is and in whatever order it comes: where the
 * bins do not reach, each two become one.
 */
export class TimeBins {
  readonly #series: number;
  readonly #maxBins: number;
  #widthMs = 1;
  /** Where the first bin begins, unless something earlier comes: mostly the beginning of what is shown. */
  #originMs: number | null = null;
  /** By their number, counted from the origin. */
  #bins = new Map<number, number[]>();
  #first = Number.POSITIVE_INFINITY;
  #last = Number.NEGATIVE_INFINITY;

  /** `maxBins`: two at least. */
  constructor(series: number, maxBins: number) {
    this.#series = series;
    this.#maxBins = Math.max(2, maxBins);
  }

  get widthMs(): number {
    return this.#widthMs;
  }

  /** The bins go at least from here to there, also where nothing fell into them. */
  reach(fromMs: number, toMs: number): void {
    this.#originMs ??= fromMs;
    this.#first = Math.min(this.#first, this.#binAt(fromMs));
    this.#last = Math.max(this.#last, this.#binAt(toMs));
    // Ends: each turn halves the bins, down to the one before the origin and the one after it.
    while (this.#last - this.#first >= this.#maxBins) this.#double();
  }

  addAt(series: number, atMs: number): void {
    this.reach(atMs, atMs);
    this.#add(this.#binAt(atMs), series, 1);
  }

  /** Adds the milliseconds that each bin has of this stretch. */
  addSpan(series: number, fromMs: number, toMs: number): void {
    this.reach(fromMs, toMs);
    for (let bin = this.#binAt(fromMs); this.#startOf(bin) < toMs; bin += 1) {
      this.#add(bin, series, Math.min(toMs, this.#startOf(bin + 1)) - Math.max(fromMs, this.#startOf(bin)));
    }
  }

  /** In order, without gaps. */
  *[Symbol.iterator](): Generator<TimeBin> {
    const nothing = Array.from({ length: this.#series }, () => 0);
    for (let bin = this.#first; bin <= this.#last; bin += 1) {
      const amounts = this.#bins.get(bin) ?? nothing;
      yield { fromMs: this.#startOf(bin), toMs: this.#startOf(bin + 1), amounts };
    }
  }

  #binAt(ms: number): number {
    return Math.floor((ms - (this.#originMs ?? 0)) / this.#widthMs);
  }

  #startOf(bin: number): number {
    return (this.#originMs ?? 0) + bin * this.#widthMs;
  }

  #add(bin: number, series: number, amount: number): void {
    let amounts = this.#bins.get(bin);
    if (amounts === undefined) {
      amounts = Array.from({ length: this.#series }, () => 0);
      this.#bins.set(bin, amounts);
    }
    amounts[series] = (amounts[series] ?? 0) + amount;
  }

  #double(): void {
    const halves = this.#bins;
    this.#bins = new Map();
    this.#widthMs *= 2;
    this.#first = Math.floor(this.#first / 2);
    this.#last = Math.floor(this.#last / 2);
    for (const [bin, amounts] of halves) {
      for (const [series, amount] of amounts.entries()) this.#add(Math.floor(bin / 2), series, amount);
    }
  }
}
