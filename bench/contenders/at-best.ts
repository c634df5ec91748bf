import { type Around, atOnce, type Contender, interleaved, rate, type Series } from "../measure.ts";
import { percentile } from "../outcome/percentile.ts";
import { nameAtAnyConcurrency } from "../outcome/report.ts";

/** One way of running an item. It is measured at several concurrencies. */
export interface Parallel {
  readonly name: string;
  run(index: number): Promise<void>;
  around(items: number): Around;
}

const CONCURRENCIES = [1, 2, 4, 8];

/** Each contender at the concurrencies at which it was quickest, in one short trial of all in turns. */
export async function finalists(
  parallels: readonly Parallel[],
  { trialItems, finalists }: { readonly trialItems: number; readonly finalists: number },
  items: number,
): Promise<Contender[]> {
  const all = CONCURRENCIES.flatMap((at) => parallels.map((parallel) => ({ parallel, at })));
  const trial = await interleaved(
    all.map(({ parallel, at }) => batch(parallel, at, trialItems)),
    1,
    0,
  );
  const measured = all.map((tried, index) => ({ ...tried, rate: trial[index]?.values[0] ?? 0 }));
  return parallels.flatMap((parallel) => {
    const own = measured.filter((tried) => tried.parallel === parallel);
    return quickest(own, finalists).map(({ at }) => batch(parallel, at, items));
  });
}

/** The quickest first. */
export function quickest<Tried extends { readonly rate: number }>(all: readonly Tried[], count: number): Tried[] {
  return all.toSorted((a, b) => b.rate - a.rate).slice(0, count);
}

/** The quickest series of each name. The name is the part before the concurrency. */
export function bestOf(series: readonly Series[]): Series[] {
  const best = new Map<string, Series>();
  for (const one of series) {
    const name = nameAtAnyConcurrency(one.name);
    const other = best.get(name);
    if (other === undefined || percentile(one.values, 0.5) > percentile(other.values, 0.5)) best.set(name, one);
  }
  return [...best.values()];
}

function batch({ name, run, around }: Parallel, concurrency: number, items: number): Contender {
  return rate(`${name}, ${concurrency} at once`, items, () => atOnce(items, concurrency, run), around(items));
}
