import type { Level } from "./options.ts";

/** How much is measured. More takes longer, and a noisy minute affects it less. */
export interface Sizes {
  /** For single runs of some hundred milliseconds each. */
  readonly runRounds: number;
  /** For commands in a running cell, and for the Engine's archive calls. */
  readonly execRounds: number;
  readonly fileRounds: number;
  /** For requests to a server, and for downloads of so many bytes. */
  readonly requestRounds: number;
  readonly downloadRounds: number;
  readonly downloadBytes: number;
  /** For whole batches, and the number of items in each. */
  readonly rateRounds: number;
  readonly freshItems: number;
  readonly scrubbedItems: number;
  /** Items of the trial that finds each contender's best concurrencies, and how many of these are measured in full. */
  readonly trialItems: number;
  readonly finalists: number;
  /** The sizes of the fleets whose cost per item is compared, and how often each runs. */
  readonly growth: readonly number[];
  readonly growthRounds: number;
  /** Empty items of a queue, and how often they are measured; the sizes of fleets of them whose cost is compared. */
  readonly queueItems: number;
  readonly queueGrowth: readonly number[];
  readonly queueRounds: number;
  /** Items with fresh cells of fleets by store, and how often each of these fleets runs; scrubbed ones are as many as above. */
  readonly sharedItems: number;
  readonly storeRounds: number;
  readonly liveCells: number;
  readonly queuedItems: number;
}

const USUAL: Sizes = {
  runRounds: 20,
  execRounds: 30,
  fileRounds: 400,
  requestRounds: 300,
  downloadRounds: 5,
  downloadBytes: 1e9,
  rateRounds: 4,
  freshItems: 32,
  scrubbedItems: 1000,
  trialItems: 16,
  finalists: 2,
  growth: [10, 100, 1000],
  growthRounds: 2,
  queueItems: 10_000,
  queueGrowth: [1000, 10_000, 100_000],
  queueRounds: 2,
  sharedItems: 96,
  storeRounds: 3,
  liveCells: 8,
  queuedItems: 10_000,
};

const QUICK: Sizes = {
  ...USUAL,
  runRounds: 5,
  execRounds: 10,
  fileRounds: 100,
  requestRounds: 50,
  downloadRounds: 3,
  downloadBytes: 256e6,
  rateRounds: 3,
  freshItems: 12,
  scrubbedItems: 1000,
  trialItems: 8,
  finalists: 1,
  growth: [10, 100],
  growthRounds: 1,
  queueItems: 5000,
  queueGrowth: [1000, 10_000],
  queueRounds: 1,
  sharedItems: 32,
  storeRounds: 2,
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
