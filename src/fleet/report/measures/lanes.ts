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
