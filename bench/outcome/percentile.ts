/** The nearest rank: always a measured value, never interpolated. `part` is from 0 to 1. NaN if there are no values. */
export function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const rank = Math.max(1, Math.ceil(part * sorted.length - 1e-9));
  return sorted[rank - 1] ?? Number.NaN;
}
