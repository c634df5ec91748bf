import { loadSeccompProfile } from "../../src/declarations/policy/policy.ts";
import type { Reuse } from "../../src/fleet/model/item.ts";
import type { Bench } from "../bench.ts";
import { bestOf, finalists, type Parallel } from "../contenders/at-best.ts";
import { dockerRun } from "../contenders/docker-run.ts";
import { engineRun } from "../contenders/engine-api.ts";
import { runFleet } from "../contenders/fleet.ts";
import { checkedItems, itemRun, type OneRun } from "../contenders/one-run.ts";
import type { Ours } from "../contenders/ours.ts";
import { type Contender, interleaved, rate } from "../measure.ts";
import { DOCKER_RUN, ENGINE_API, ENGINE_API_DISABLED, FRESH, SCRUBBED } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import type { Suite } from "./suite.ts";

/** Many items of a worker that reads its item and writes its output, at the quickest concurrency. */
export const RATES: Suite = {
  async measure(bench) {
    const { sizes, projectDir } = bench;
    const fleet = (ours: Ours, name: string, reuse: Reuse, items: number): Contender =>
      rate(ours.row(name), items, () => runFleet(ours, reuse, items), checkedItems(projectDir, items));
    const contenders = [
      ...(await finalists(await parallels(bench), sizes, sizes.freshItems)),
      ...bench.ours.map((ours) => fleet(ours, FRESH, "fresh", sizes.freshItems)),
      ...bench.ours.filter(canScrub).map((ours) => fleet(ours, SCRUBBED, "scrubbed", sizes.scrubbedItems)),
    ];
    const series = bestOf(await interleaved(contenders, sizes.rateRounds, 0));
    const notes = [
      `A fleet's rate is for ${sizes.freshItems} items with fresh cells and ${sizes.scrubbedItems} with scrubbed cells, from opening its journal until its last cell is removed.`,
      ...(process.geteuid?.() === 0 ? [] : ["Scrubbed cells were not measured: Corral must run as root for them."]),
    ];
    return { groups: [groupOf("rates", "Many items: read the item, write its output", "items/s", series)], notes };
  },
};

/** A cell of bubblewrap serves one item. */
export function canScrub({ driver }: Pick<Ours, "driver">): boolean {
  return process.geteuid?.() === 0 && driver !== "bwrap";
}

async function parallels({ docker, plan, peers, hasDocker, projectDir }: Bench): Promise<Parallel[]> {
  const seccomp = { corral: await loadSeccompProfile() };
  const parallel = (name: string, act: (run: OneRun) => Promise<void>): Parallel => ({
    name,
    run: async (index) => await act(await itemRun(projectDir, index, plan)),
    around: (items) => checkedItems(projectDir, items),
  });
  return [
    ...(hasDocker ? [parallel(DOCKER_RUN, (run) => dockerRun(plan, run))] : []),
    parallel(ENGINE_API, (run) => engineRun(docker, plan, run, seccomp, "none")),
    parallel(ENGINE_API_DISABLED, (run) => engineRun(docker, plan, run, seccomp, "disabled")),
    ...peers.present.map((peer) => parallel(peer.name, (run) => peer.run(plan, run))),
  ];
}
