import type { Level } from "./options.ts";

/** How much is measured. More of it takes longer, and is less moved by a noisy minute. */
export interface Sizes {
  /** Of single runs, each some hundred milliseconds. */
  readonly runRounds: number;
  /** Of commands in a cell that stands, and of the Engine's archive calls. */
  readonly execRounds: number;
  readonly fileRounds: number;
  /** Of whole batches, and how many items each has. */
  readonly rateRounds: number;
  readonly freshItems: number;
  readonly scrubbedItems: number;
  /** For finding each contender's best concurrency, and how many of its concurrencies are measured in full. */
  readonly trialItems: number;
  readonly finalists: number;
  /** Items of the fleets whose cost per item is compared, and how often each is run. */
  readonly growth: readonly number[];
  readonly growthRounds: number;
  readonly liveCells: number;
  readonly queuedItems: number;
}

const USUAL: Sizes = {
  runRounds: 20,
  execRounds: 30,
  fileRounds: 400,
  rateRounds: 4,
  freshItems: 32,
  scrubbedItems: 1000,
  trialItems: 16,
  finalists: 2,
  growth: [10, 100, 1000],
  growthRounds: 2,
  liveCells: 8,
  queuedItems: 10_000,
};

const QUICK: Sizes = {
  ...USUAL,
  runRounds: 5,
  execRounds: 10,
  fileRounds: 100,
  rateRounds: 3,
  freshItems: 12,
  scrubbedItems: 1000,
  trialItems: 8,
  finalists: 1,
  growth: [10, 100],
  growthRounds: 1,
  liveCells: 4,
  queuedItems: 2000,
};

const FULL: Sizes = {
  ...USUAL,
  runRounds: 40,
  rateRounds: 6,
  freshItems: 48,
  growth: [10, 100, 1000, 10_000],
  growthRounds: 3,
};

export const SIZES: Readonly<Record<Level, Sizes>> = { quick: QUICK, usual: USUAL, full: FULL };
