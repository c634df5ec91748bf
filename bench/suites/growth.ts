import { runFleet } from "../contenders/fleet.ts";
import type { Ours } from "../contenders/ours.ts";
import { type Contender, interleaved } from "../measure.ts";
import { amongItems } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import { canScrub } from "./rates.ts";
import type { Suite } from "./suite.ts";

/** The cost of an item in small and in large fleets, with scrubbed cells. */
export const GROWTH: Suite = {
  async measure(bench) {
    const { growth, growthRounds } = bench.sizes;
    const contenders = bench.ours.filter(canScrub).flatMap((ours) => growth.map((items) => costPerItem(ours, items)));
    if (contenders.length === 0) return { groups: [] };
    const series = await interleaved(contenders, growthRounds, 0);
    return { groups: [groupOf("growth", "The cost of an item in a scrubbed fleet, by its size", "ms", series)] };
  },
};

function costPerItem(ours: Ours, items: number): Contender {
  return {
    names: [ours.row(amongItems(items))],
    async once() {
      const begun = performance.now();
      await runFleet(ours, "scrubbed", items);
      return [(performance.now() - begun) / items];
    },
  };
}
