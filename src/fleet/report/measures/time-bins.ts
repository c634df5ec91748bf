/** One time interval and its amounts, by series. */
export interface TimeBin {
  readonly fromMs: number;
  readonly toMs: number;
  readonly amounts: readonly number[];
}

/**
 * Amounts over time in a bounded number of bins, for any time span and any order of input. If the bins do not cover the
 * span, neighbouring bins are merged in pairs.
 */
export class TimeBins {
  readonly #series: number;
  readonly #maxBins: number;
  #widthMs = 1;
  /** The start of bin 0, usually the start of the span. Earlier amounts get negative bins. */
  #originMs: number | null = null;
  /** By bin number, counted from the origin. */
  #bins = new Map<number, number[]>();
  #first = Number.POSITIVE_INFINITY;
  #last = Number.NEGATIVE_INFINITY;

  /** `maxBins`: at least two. */
  constructor(series: number, maxBins: number) {
    this.#series = series;
    this.#maxBins = Math.max(2, maxBins);
  }

  get widthMs(): number {
    return this.#widthMs;
  }

  /** Makes the bins cover this span, even if they are empty. */
  reach(fromMs: number, toMs: number): void {
    this.#originMs ??= fromMs;
    this.#first = Math.min(this.#first, this.#binAt(fromMs));
    this.#last = Math.max(this.#last, this.#binAt(toMs));
    // This ends: each turn halves the bins, down to one before and one after the origin.
    while (this.#last - this.#first >= this.#maxBins) this.#double();
  }

  addAt(series: number, atMs: number): void {
    this.reach(atMs, atMs);
    this.#add(this.#binAt(atMs), series, 1);
  }

  /** Adds to each bin the milliseconds that this span has in it. */
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
