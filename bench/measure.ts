/** One way of doing the same work. A round returns one number or several: milliseconds, or items per second. */
export interface Contender {
  /** In the order of the numbers that {@link once} returns. */
  readonly names: readonly string[];
  once(): Promise<readonly number[]>;
}

/** The values of one name, in the order of the rounds. */
export interface Series {
  readonly name: string;
  readonly values: readonly number[];
}

/** A contender that measures its duration in milliseconds. */
export function wallClock(name: string, act: () => Promise<unknown>): Contender {
  return {
    names: [name],
    async once() {
      const begun = performance.now();
      await act();
      return [performance.now() - begun];
    },
  };
}

/** Work outside the measured time. */
export interface Around {
  before(): Promise<void>;
  /** Throws if the work was not done. */
  after(): Promise<void>;
}

/** A contender that measures its items per second. */
export function rate(name: string, items: number, act: () => Promise<unknown>, { before, after }: Around): Contender {
  return {
    names: [name],
    async once() {
      await before();
      const begun = performance.now();
      await act();
      const took = performance.now() - begun;
      await after();
      return [(items * 1000) / took];
    },
  };
}

/** A, B, C, A, B, C, …: a noisy minute of the machine affects all contenders equally. The warm-ups do not count. */
export async function interleaved(
  contenders: readonly Contender[],
  rounds: number,
  warmUps: 0 | 1 = 1,
): Promise<Series[]> {
  const measured = contenders.map(({ names }) => names.map((name) => ({ name, values: [] as number[] })));
  for (let round = -warmUps; round < rounds; round += 1) {
    for (const [at, contender] of contenders.entries()) {
      const numbers = await contender.once();
      if (round < 0) continue;
      for (const [index, value] of numbers.entries()) measured[at]?.[index]?.values.push(value);
    }
  }
  return measured.flat();
}

/** Runs `count` acts, at most `concurrency` at once. Rejects with a failure only when no act is still running. */
export async function atOnce(count: number, concurrency: number, act: (index: number) => Promise<void>): Promise<void> {
  let next = 0;
  let failed = false;
  const lane = async (): Promise<void> => {
    while (next < count && !failed) {
      const index = next;
      next += 1;
      await act(index).catch((error: unknown) => {
        failed = true;
        throw error;
      });
    }
  };
  const lanes = await Promise.allSettled(Array.from({ length: Math.min(concurrency, count) }, lane));
  for (const settled of lanes) if (settled.status === "rejected") throw settled.reason;
}
