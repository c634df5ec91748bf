import type { CellUsage } from "../port/cell.ts";

/**
 * Milliseconds between measurements after the worker was released; the last interval repeats. To read two files costs
 * almost nothing; a request to an engine costs it as much as a small worker.
 */
const FILE_INTERVALS_MS = [25, 75, 150, 250, 500, 1000] as const;
const REQUEST_INTERVALS_MS = [150, 350, 500, 1000, 2000] as const;

/** How a cell is measured: by files of this machine, or by a request to its engine. Null: it is gone. */
export type UsageMeasure =
  | { readonly by: "files"; readonly read: () => CellUsage | null }
  | { readonly by: "request"; readonly ask: () => Promise<CellUsage | null> };

/** Measures a running cell from time to time: after its end the values are gone. */
export class UsageSampler {
  readonly #find: () => UsageMeasure;
  #measure: UsageMeasure | null = null;
  #usage: CellUsage = { cpuMs: null, memoryBytesPeak: null };
  #stopped = false;
  #timer: NodeJS.Timeout | undefined;

  /** `find` is called once, when the measurements begin. */
  constructor(find: () => UsageMeasure) {
    this.#find = find;
  }

  /** From now on; once. */
  begin(): void {
    this.#measure = this.#find();
    this.#schedule(this.#measure, 0);
  }

  last(): CellUsage {
    return this.#usage;
  }

  /** A last measurement that was made otherwise. */
  add(measured: CellUsage | null): void {
    if (measured !== null) this.#usage = merge(this.#usage, measured);
  }

  stop(): void {
    this.#stopped = true;
    clearTimeout(this.#timer);
  }

  #schedule(measure: UsageMeasure, index: number): void {
    const intervals = measure.by === "files" ? FILE_INTERVALS_MS : REQUEST_INTERVALS_MS;
    const next = Math.min(index, intervals.length - 1);
    this.#timer = setTimeout(() => void this.#sample(measure, next), intervals[next]);
    this.#timer.unref();
  }

  async #sample(measure: UsageMeasure, index: number): Promise<void> {
    const measured = measure.by === "files" ? measure.read() : await measure.ask();
    if (this.#stopped) return;
    this.add(measured);
    this.#schedule(measure, index + 1);
  }
}

/** cgroup v1 keeps the peak; v2 may report only the present value, so the largest one seen is used. */
function merge(before: CellUsage, { cpuMs, memoryBytesPeak: memory }: CellUsage): CellUsage {
  return {
    cpuMs,
    memoryBytesPeak: memory === null ? before.memoryBytesPeak : Math.max(before.memoryBytesPeak ?? 0, memory),
  };
}
