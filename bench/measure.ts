/** One way of doing a thing, timed by the wall clock. */
export interface Contender {
  readonly name: string;
  once(): Promise<void>;
}

export interface Timing {
  readonly name: string;
  readonly medianMs: number;
  readonly bestMs: number;
  /** This median over the first contender's. */
  readonly ratio: number;
}

/** Runs the contenders in turn, so that a noisy minute of the machine falls on all of them alike. The first is the measure. */
export async function compare(contenders: readonly Contender[], rounds: number): Promise<Timing[]> {
  const times = contenders.map((): number[] => []);
  for (let round = -1; round < rounds; round += 1) {
    for (const [index, contender] of contenders.entries()) {
      const begun = performance.now();
      await contender.once();
      // The first round only warms up.
      if (round >= 0) times[index]?.push(performance.now() - begun);
    }
  }
  const medians = times.map(median);
  return contenders.map(({ name }, index) => ({
    name,
    medianMs: medians[index] ?? Number.NaN,
    bestMs: Math.min(...(times[index] ?? [])),
    ratio: (medians[index] ?? Number.NaN) / (medians[0] ?? Number.NaN),
  }));
}

export function printTimings(title: string, timings: readonly Timing[]): void {
  console.log(`\n${title}`);
  for (const { name, medianMs, bestMs, ratio } of timings) {
    const ms = (value: number): string => `${value.toFixed(value < 10 ? 3 : 1)} ms`;
    console.log(
      `  ${name.padEnd(44)} median ${ms(medianMs).padStart(10)}  best ${ms(bestMs).padStart(10)}  ×${ratio.toFixed(2)}`,
    );
  }
}

function median(times: readonly number[]): number {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
