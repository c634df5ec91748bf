import { loadSeccompProfile } from "../../src/declarations/policy/policy.ts";
import { runFromCommandLine, runFromLibrary } from "../contenders/cold-run.ts";
import { dockerRun } from "../contenders/docker-run.ts";
import { type EngineNetwork, engineRun } from "../contenders/engine-api.ts";
import { nestedCall } from "../contenders/nested-call.ts";
import { ECHO_RUN } from "../contenders/one-run.ts";
import type { Ours } from "../contenders/ours.ts";
import { warmClaim } from "../contenders/warm-claim.ts";
import { type Contender, interleaved, wallClock } from "../measure.ts";
import { COLD_COMMAND_LINE, COLD_LIBRARY, DOCKER_RUN, ENGINE_API, ENGINE_API_DISABLED } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import type { Suite } from "./suite.ts";

/** One worker that prints a word, one run at a time. */
export const RUNS: Suite = {
  async measure(bench) {
    const { docker, plan, peers, hasDocker, sizes } = bench;
    const seccomp = { corral: await loadSeccompProfile() };
    const engine = (network: EngineNetwork): Promise<void> => engineRun(docker, plan, ECHO_RUN, seccomp, network);
    const contenders = [
      ...(hasDocker ? [wallClock(DOCKER_RUN, () => dockerRun(plan, ECHO_RUN))] : []),
      wallClock(ENGINE_API, () => engine("none")),
      wallClock(ENGINE_API_DISABLED, () => engine("disabled")),
      ...peers.present.map((peer) => wallClock(peer.name, () => peer.run(plan, ECHO_RUN))),
      ...(await Promise.all(bench.ours.map(contendersOf))).flat(),
    ];
    const series = await interleaved(contenders, sizes.runRounds);
    return { groups: [groupOf("runs", "One run of `echo`, one at a time", "ms", series)] };
  },
};

async function contendersOf(ours: Ours): Promise<Contender[]> {
  return [
    wallClock(ours.row(COLD_LIBRARY), () => runFromLibrary(ours)),
    wallClock(ours.row(COLD_COMMAND_LINE), () => runFromCommandLine(ours)),
    nestedCall(ours),
    await warmClaim(ours),
  ];
}
