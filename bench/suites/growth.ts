import type { Bench } from "../bench.ts";
import { runFleet } from "../contenders/fleet.ts";
import type { Contender } from "../measure.ts";
import { interleaved } from "../measure.ts";
import { groupOf } from "../outcome/report.ts";
import { canScrub } from "./rates.ts";
import type { Suite } from "./suite.ts";

/** What an item costs in small fleets and in large ones, with scrubbed cells. */
export const GROWTH: Suite = {
  async measure(bench) {
    if (!canScrub()) return { groups: [] };
    const { growth, growthRounds } = bench.sizes;
    const contenders = growth.map((items) => costPerItem(bench, items));
    const series = await interleaved(contenders, growthRounds, 0);
    return { groups: [groupOf("growth", "An item's cost in a scrubbed fleet of so many", "ms", series)] };
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
