import { loadSeccompProfile } from "../../declarations/policy/seccomp.ts";
import { currentOwner, loadSealKey } from "../../state/owner.ts";
import { statePaths } from "../../state/state-paths.ts";
import { closedGate } from "../gate/closed-gate.ts";
import type { EnginePort, OpenEngineRequest } from "../port/engine.ts";
import { connect } from "./connect.ts";
import { dockerDriver } from "./driver.ts";
import { describeEndpoint } from "./endpoint.ts";
import { gateBinary } from "./images/gate.ts";

/** The Docker Engine of this machine, as the port that the rest of Corral uses. */
export async function openDockerEngine({ stateDir, engineEnv }: OpenEngineRequest): Promise<EnginePort> {
  const [{ docker, endpoint, socketPath, dataDirs }, sealKey, seccomp] = await Promise.all([
    connect(engineEnv),
    loadSealKey(stateDir),
    loadSeccompProfile(),
  ]);
  const { live, names } = statePaths(stateDir);
  return {
    driver: dockerDriver({
      docker,
      maker: { owner: currentOwner(), sealKey },
      seccomp: { corral: seccomp },
      liveDir: live,
      namesDir: names,
    }),
    // Both are loaded when they are needed: most commands build no image.
    images: {
      status: async (imagesDir) => (await import("./images/status.ts")).imageStatus({ docker, stateDir, imagesDir }),
      build: async (request) =>
        (await import("./images/build-images.ts")).buildImages({ ...request, docker, stateDir }),
    },
    gate: async () => await closedGate(await gateBinary({ docker, stateDir })),
    hostPlaces: { data: dataDirs, sockets: socketPath === null ? [] : [socketPath] },
    description: describeEndpoint(endpoint),
  };
}
