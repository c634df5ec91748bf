import { niceStep } from "./scale.ts";
import type { DurationStatistics } from "./statistics.ts";

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
