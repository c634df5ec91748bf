import type { DurationStatistics } from "./statistics.ts";

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
const TIME_STEPS = [
  1,
  2,
  5,
  10,
  20,
  50,
  100,
  200,
  500,
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
  1,
  2,
  5,
  10,
  20,
  50,
  100,
  200,
  500,
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
