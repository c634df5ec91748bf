import type { Bench } from "../bench.ts";
import { runFleet } from "../contenders/fleet.ts";
import type { Contender } from "../measure.ts";
import { interleaved } from "../measure.ts";
import { groupOf } from "../outcome/report.ts";
import { canScrub } from "./rates.ts";
import type { Suite } from "./suite.ts";

/** The cost of an item in small and in large fleets, with scrubbed cells. */
export const GROWTH: Suite = {
  async measure(bench) {
    if (!canScrub()) return { groups: [] };
    const { growth, growthRounds } = bench.sizes;
    const contenders = growth.map((items) => costPerItem(bench, items));
    const series = await interleaved(contenders, growthRounds, 0);
    return { groups: [groupOf("growth", "The cost of an item in a scrubbed fleet, by its size", "ms", series)] };
  },
};

function costPerItem(bench: Bench, items: number): Contender {
  return {
    names: [`${items} items`],
    async once() {
      const begun = performance.now();
      await runFleet(bench, "scrubbed", items);
      return [(performance.now() - begun) / items];
    },
  };
}
