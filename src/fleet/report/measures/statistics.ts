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

/** The smallest 1, 2 or 5 times a power of ten that is at least `rough`. */
export function niceStep(rough: number): number {
  if (!(rough > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5].find((candidate) => candidate * power >= rough * (1 - 1e-9));
  return (factor ?? 10) * power;
}

/** Ticks from 0 to at least `max`: about `wanted` steps, at most twice as many. */
export function ticksUpTo(max: number, wanted: number): number[] {
  const step = niceStep(max / wanted);
  const steps = Math.min(2 * wanted, Math.max(1, Math.ceil(max / step - 1e-9)));
  return Array.from({ length: steps + 1 }, (_, index) => index * step);
}

const [SECOND, MINUTE, HOUR, DAY] = [1000, 60_000, 3_600_000, 86_400_000] as const;
const MILLISECONDS = [1, 2, 5, 10, 20, 50, 100, 200, 500];
const TIME_STEPS = [
  ...MILLISECONDS,
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 3, 6, 12].map((hours) => hours * HOUR),
  ...[1, 2, 7].map((days) => days * DAY),
];

/** From `fromMs` to `toMs`, inclusive, in clock or calendar units, so that there are at most `wanted` steps. */
export function timeTicks(fromMs: number, toMs: number, wanted = 8): number[] {
  const spanMs = toMs - fromMs;
  const step = TIME_STEPS.find((step) => spanMs / step <= wanted) ?? niceStep(spanMs / wanted / DAY) * DAY;
  const first = Math.ceil(fromMs / step - 1e-9);
  const last = Math.floor(toMs / step + 1e-9);
  return Array.from(
    { length: Math.max(0, Math.min(last - first, 2 * wanted) + 1) },
    (_, index) => (first + index) * step,
  );
}

const LOG_TICKS = [1, 10, 100, SECOND, 10 * SECOND, MINUTE, 10 * MINUTE, HOUR, 10 * HOUR, DAY, 10 * DAY, 100 * DAY];

const FINE_LOG_TICKS = [
  ...MILLISECONDS,
  ...[1, 2, 5, 10, 20].map((seconds) => seconds * SECOND),
  ...[1, 2, 5, 10, 20].map((minutes) => minutes * MINUTE),
  ...[1, 2, 5, 10].map((hours) => hours * HOUR),
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * DAY),
];

/** Round durations for a logarithmic axis; a short axis gets finer ones. */
export function logTimeTicks(fromMs: number, toMs: number): number[] {
  const isWithin = (ms: number): boolean => ms >= fromMs * (1 - 1e-9) && ms <= toMs * (1 + 1e-9);
  const ticks = LOG_TICKS.filter(isWithin);
  return ticks.length >= 4 ? ticks : FINE_LOG_TICKS.filter(isWithin);
}

export interface HistogramBin {
  readonly fromMs: number;
  readonly toMs: number;
  readonly count: number;
}

export interface Histogram {
  readonly scale: "linear" | "log";
  /** Consecutive bins from the shortest to the longest duration; at most 60. */
  readonly bins: readonly HistogramBin[];
}

const MAX_BINS = 60;
/** Fewer bins show no shape. */
const MIN_BINS = 8;
/** If the longest duration is this many times the median, a linear scale would show only one bar. */
const SKEWED = 10;

/** Durations in bins, logarithmic if they are skewed. Null if there are none. */
export function histogramOf(statistics: DurationStatistics): Histogram | null {
  const { min, max } = statistics;
  const median = statistics.quantile(0.5);
  if (min === null || max === null || median === null) return null;
  const scale = max > SKEWED * Math.max(1, median) ? "log" : "linear";
  const edges = scale === "log" ? logEdges(min, max) : linearEdges(min, max);
  const counts = edges.slice(1).map(() => 0);
  let bin = 0;
  for (const { ms, count } of statistics.values()) {
    while (bin < counts.length - 1 && ms >= (edges[bin + 1] ?? 0)) bin += 1;
    counts[bin] = (counts[bin] ?? 0) + count;
  }
  return {
    scale,
    bins: counts.map((count, index) => ({ fromMs: edges[index] ?? 0, toMs: edges[index + 1] ?? 0, count })),
  };
}

function linearEdges(min: number, max: number): number[] {
  const step = niceStep(Math.max(max - min, max / 5, 1e-3) / (MAX_BINS / 2));
  const first = Math.floor(min / step);
  const bins = Math.max(MIN_BINS, Math.floor(max / step) + 1 - first);
  return Array.from({ length: bins + 1 }, (_, index) => (first + index) * step);
}

/** Durations below a millisecond go into the first bin. */
function logEdges(min: number, max: number): number[] {
  const decades = Math.log10(Math.max(1, max)) - Math.log10(Math.max(1, min));
  const perDecade = decades <= 4 ? 10 : 4;
  const first = Math.floor(Math.log10(Math.max(1, min)) * perDecade);
  const last = Math.floor(Math.log10(Math.max(1, max)) * perDecade) + 1;
  return Array.from({ length: last - first + 1 }, (_, index) => 10 ** ((first + index) / perDecade));
}

/** A time span in milliseconds. */
export interface Stretch {
  readonly startMs: number;
  readonly endMs: number;
}

/**
 * Assigns lanes so that no two spans in one lane overlap. Each span gets the first lane that is free at its start, which
 * needs the fewest lanes. Null if that is more than `maxLanes`.
 */
export function lanesOf(stretches: readonly Stretch[], maxLanes: number): readonly number[] | null {
  const inOrder = [...stretches.entries()].sort(([, a], [, b]) => a.startMs - b.startMs);
  const lanes: number[] = [];
  /** When each lane is free. */
  const freeAt: number[] = [];
  for (const [index, stretch] of inOrder) {
    const free = freeAt.findIndex((at) => at <= stretch.startMs);
    const lane = free === -1 ? freeAt.length : free;
    if (lane >= maxLanes) return null;
    freeAt[lane] = stretch.endMs;
    lanes[index] = lane;
  }
  return lanes;
}
