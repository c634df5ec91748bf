/** The nearest rank: a value that was measured, and none in between. `part` from 0 to 1; NaN where there are none. */
export function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const rank = Math.max(1, Math.ceil(part * sorted.length - 1e-9));
  return sorted[rank - 1] ?? Number.NaN;
}
