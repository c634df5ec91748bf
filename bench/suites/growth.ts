import type { Bench } from "../bench.ts";
import { runFleet } from "../contenders/fleet.ts";
import type { Contender } from "../measure.ts";
import { interleaved } from "../measure.ts";
import { groupOf } from "../outcome/report.ts";
import { canScrub } from "./rates.ts";
import type { Suite } from "./suite.ts";

const SAMPLE_MS = 100;

/** What an item costs in small fleets and in large ones, with scrubbed cells; and what of memory the largest takes. */
export const GROWTH: Suite = {
  name: "growth",
  async measure(bench) {
    if (!canScrub()) return { groups: [] };
    const { growth, growthRounds } = bench.sizes;
    let peakBytes = 0;
    const sampler = setInterval(() => {
      peakBytes = Math.max(peakBytes, process.memoryUsage().rss);
    }, SAMPLE_MS);
    try {
      const series = await interleaved(
        growth.map((items) => costPerItem(bench, items)),
        growthRounds,
        0,
      );
      const group = groupOf("growth", "An item's cost in a scrubbed fleet of so many", "ms", series);
      const peak = Math.round(peakBytes / 1e6);
      return {
        groups: [group],
        notes: [`The bench's own process, fleets and all, took at most ${peak} MB of memory (resident).`],
      };
    } finally {
      clearInterval(sampler);
    }
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
