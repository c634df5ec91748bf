import type { Contender, Series } from "../measure.ts";

const PROCESSOR = " (processor)";

/** A contender that measures its items per second, and the processor time of each. `prepare` is not measured; `usedMs`: so far. */
export function costing(
  name: string,
  items: number,
  usedMs: () => number,
  prepare: () => Promise<() => Promise<void>>,
): Contender {
  return {
    names: [name, `${name}${PROCESSOR}`],
    async once() {
      const act = await prepare();
      const used = usedMs();
      const begun = performance.now();
      await act();
      const took = performance.now() - begun;
      return [(items * 1000) / took, ((usedMs() - used) * 1000) / items];
    },
  };
}

export function ratesOf(series: readonly Series[]): Series[] {
  return series.filter(({ name }) => !name.endsWith(PROCESSOR));
}

export function processorOf(series: readonly Series[]): Series[] {
  return series
    .filter(({ name }) => name.endsWith(PROCESSOR))
    .map(({ name, values }) => ({ name: name.slice(0, -PROCESSOR.length), values }));
}
