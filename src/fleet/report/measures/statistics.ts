/** Up to this number, durations are kept exactly; beyond it, only counts in bins. */
const MAX_EXACT = 20_000;
/** Durations in one bin differ by at most 1 %. */
const RATIO = 1.01;
/** About thirty years in milliseconds; longer durations count as this. */
const LONGEST_MS = 1e12;

/** Statistics of durations in bounded memory: exact for up to 20,000, within 1 % for more. */
export class DurationStatistics {
  #count = 0;
  #sum = 0;
  #min = Number.POSITIVE_INFINITY;
  #max = 0;
  /** Null if there are too many. */
  #exact: number[] | null = [];
  #sorted = true;
  /** Counts by bin. The number of bins is bounded by the longest duration. */
  readonly #bins = new Map<number, number>();

  /** Negative values and NaN count as 0. */
  add(ms: number): void {
    const value = ms > 0 ? Math.min(ms, LONGEST_MS) : 0;
    this.#count += 1;
    this.#sum += value;
    this.#min = Math.min(this.#min, value);
    this.#max = Math.max(this.#max, value);
    if (this.#exact === null) {
      this.#addToBin(value);
      return;
    }
    this.#exact.push(value);
    this.#sorted = false;
    if (this.#exact.length <= MAX_EXACT) return;
    for (const kept of this.#exact) this.#addToBin(kept);
    this.#exact = null;
  }

  get count(): number {
    return this.#count;
  }

  /** Null if there are no durations, like the others. */
  get min(): number | null {
    return this.#count === 0 ? null : this.#min;
  }

  get max(): number | null {
    return this.#count === 0 ? null : this.#max;
  }

  get mean(): number | null {
    return this.#count === 0 ? null : this.#sum / this.#count;
  }

  /** The smallest duration that at least this share (0 to 1) of all durations do not exceed. */
  quantile(share: number): number | null {
    if (this.#count === 0) return null;
    const rank = Math.min(this.#count, Math.max(1, Math.ceil(share * this.#count)));
    let seen = 0;
    for (const { ms, count } of this.values()) {
      seen += count;
      if (seen >= rank) return ms;
    }
    return this.#max;
  }

  /** Durations from the shortest to the longest, with their counts. */
  *values(): Generator<{ readonly ms: number; readonly count: number }> {
    if (this.#exact !== null) {
      if (!this.#sorted) this.#exact.sort((a, b) => a - b);
      this.#sorted = true;
      for (const ms of this.#exact) yield { ms, count: 1 };
      return;
    }
    const bins = [...this.#bins].sort(([a], [b]) => a - b);
    for (const [bin, count] of bins) yield { ms: this.#middleOf(bin), count };
  }

  #addToBin(ms: number): void {
    const bin = ms < 1 ? 0 : 1 + Math.floor(Math.log(ms) / Math.log(RATIO));
    this.#bins.set(bin, (this.#bins.get(bin) ?? 0) + 1);
  }

  #middleOf(bin: number): number {
    const middle = bin === 0 ? 0.5 : RATIO ** (bin - 0.5);
    return Math.min(this.#max, Math.max(this.#min, middle));
  }
}
