import { openFleetStore } from "../../src/fleet/fleet-stores.ts";
import type { Reuse } from "../../src/fleet/model/item.ts";
import type { Bench } from "../bench.ts";
import { runFleet } from "../contenders/fleet.ts";
import { checkedItems } from "../contenders/one-run.ts";
import { interleaved } from "../measure.ts";
import { POSTGRES, SQLITE } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import { canScrub } from "../suites/rates.ts";
import type { Suite } from "../suites/suite.ts";
import { costing, processorOf, ratesOf } from "./costing.ts";
import { type OwnServer, ownMs, serverMs } from "./stores.ts";

/** Whole fleets of one process: the same items with their fleet in SQLite and in PostgreSQL. */
export async function measuredFleets({ sizes, ours: [ours] }: Bench, server: OwnServer): ReturnType<Suite["measure"]> {
  await using inPostgres = await openFleetStore(ours.stateDir, ours.projectDir, { CORRAL_QUEUE: server.server.url });
  const stores = [
    { name: SQLITE, at: ours, usedMs: ownMs },
    { name: POSTGRES, at: { ...ours, store: inPostgres }, usedMs: () => ownMs() + serverMs(server) },
  ];
  const fleets = (reuse: Reuse, items: number) => {
    const { before, after } = checkedItems(ours.projectDir, items);
    return stores.map(({ name, at, usedMs }) => {
      const contender = costing(name, items, usedMs, async () => {
        await before();
        return async () => await runFleet(at, reuse, items);
      });
      const once = async () => {
        const numbers = await contender.once();
        await after();
        return numbers;
      };
      return { ...contender, once };
    });
  };
  const groups = [];
  const kinds: readonly Reuse[] = canScrub(ours) ? ["fresh", "scrubbed"] : ["fresh"];
  for (const reuse of kinds) {
    const items = reuse === "fresh" ? sizes.sharedItems : sizes.scrubbedItems;
    const series = await interleaved(fleets(reuse, items), sizes.storeRounds);
    groups.push(
      groupOf(`machines-${reuse}`, `A fleet with ${reuse} cells, by its store`, "items/s", ratesOf(series)),
      groupOf(`machines-${reuse}-processor`, `Processor time of an item, ${reuse}`, "µs", processorOf(series)),
    );
  }
  return { groups };
}
