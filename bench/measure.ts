/** One way of doing a thing. What it tells is one number or several: milliseconds, or items a second. */
export interface Contender {
  /** In the order of what {@link once} answers. */
  readonly names: readonly string[];
  once(): Promise<readonly number[]>;
}

/** What was measured of one name, in the order of the rounds. */
export interface Series {
  readonly name: string;
  readonly values: readonly number[];
}

/** A contender whose number is how many milliseconds it takes. */
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

/** Outside the time that is measured. */
export interface Around {
  before(): Promise<void>;
  /** Throws where the work was not done. */
  after(): Promise<void>;
}

/** A contender whose number is how many items a second it gets done. */
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

/** A, B, C, A, B, C, …: a noisy minute of the machine falls on all of them alike. The warm-ups do not count. */
export async function interleaved(
  contenders: readonly Contender[],
  rounds: number,
  warmUps: 0 | 1 = 1,
): Promise<Series[]> {
  const measured = contenders.map(({ names }) => names.map((name) => ({ name, values: [] as number[] })));
  for (let round = -warmUps; round < rounds; round += 1) {
    for (const [at, contender] of contenders.entries()) {
      const told = await contender.once();
      if (round < 0) continue;
      for (const [index, value] of told.entries()) measured[at]?.[index]?.values.push(value);
    }
  }
  return measured.flat();
}

/** All of `count` acts, so many at once. The first failure is told when no act is under way any more. */
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
