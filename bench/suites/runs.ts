import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { loadSeccompProfile } from "../../src/declarations/policy/seccomp.ts";
import { run } from "../../src/run/run.ts";
import type { Bench } from "../bench.ts";
import { dockerRun } from "../contenders/docker-run.ts";
import { type EngineNetwork, engineRun } from "../contenders/engine-api.ts";
import { nestedCall } from "../contenders/nested-call.ts";
import { ECHO_RUN } from "../contenders/one-run.ts";
import { warmClaim } from "../contenders/warm-claim.ts";
import { interleaved, wallClock } from "../measure.ts";
import { DOCKER_RUN, ENGINE_API, ENGINE_API_DISABLED } from "../outcome/names.ts";
import { groupOf } from "../outcome/report.ts";
import type { Suite } from "./suite.ts";

const CORRAL = fileURLToPath(new URL("../../dist/cli/corral.js", import.meta.url));
const execute = promisify(execFile);

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
      ...peers.map((peer) => wallClock(peer.name, () => peer.run(plan, ECHO_RUN))),
      wallClock("Corral: cold run, command line", () => commandLine(bench)),
      wallClock("Corral: cold run, library", () => coldRun(bench)),
      nestedCall(bench),
      await warmClaim(bench),
    ];
    const series = await interleaved(contenders, sizes.runRounds);
    return { groups: [groupOf("runs", "One run of `echo`, one at a time", "ms", series)] };
  },
};

async function coldRun({ corral, worker }: Bench): Promise<void> {
  const asked = { worker: worker("echo"), signal: new AbortController().signal };
  const { status, error } = await run(asked, corral.environment);
  if (status !== "succeeded") throw new Error(error?.message ?? status);
}

async function commandLine({ projectDir, stateDir }: Bench): Promise<void> {
  const env = { ...process.env, CORRAL_STATE_DIR: stateDir };
  await execute(process.execPath, [CORRAL, "run", "echo", "--project", projectDir], { env });
}
