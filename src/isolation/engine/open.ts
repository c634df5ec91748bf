import { randomBytes } from "node:crypto";
import { loadSeccompProfile } from "../../declarations/policy/seccomp.ts";
import { currentOwner, KEY_BYTES, loadSealKey } from "../../state/owner.ts";
import { statePaths } from "../../state/state-paths.ts";
import { closedGate, knownClosedGate } from "../gate/closed-gate.ts";
import type { EnginePort, OpenEngineRequest } from "../port/engine.ts";
import type { EngineGround } from "../port/ground.ts";
import type { Maker } from "../port/labels.ts";
import { connect } from "./connect.ts";
import { dockerDriver } from "./driver.ts";
import { describeEndpoint } from "./endpoint.ts";
import { ExaminedImages } from "./examined-images.ts";
import { gateBinary, knownGate } from "./images/gate.ts";
import { savedImage } from "./images/saved-image.ts";

/** What another driver needs of it. */
export interface DockerEngine extends Omit<EnginePort, "itemCells" | "driving" | "unpacked"> {
  readonly ground: EngineGround;
  readonly maker: Maker;
  readonly seccomp: string;
  readonly examined: ExaminedImages;
}

/** The Docker Engine of this machine, asked while the state directory is made, as the port that the rest of Corral uses. */
export async function openDockerEngine(
  { stateDir, engineEnv, looksOnly = false }: OpenEngineRequest,
  stateDirMade: Promise<void> = Promise.resolve(),
): Promise<DockerEngine> {
  const parts = [
    connect(engineEnv),
    // What only looks seals nothing.
    looksOnly ? randomBytes(KEY_BYTES) : stateDirMade.then(() => loadSealKey(stateDir)),
    loadSeccompProfile(),
  ] as const;
  // If one fails, nothing is still being written when the caller learns of it.
  await Promise.allSettled([stateDirMade, ...parts]);
  await stateDirMade;
  const [{ docker, endpoint, socketPath, opened }, sealKey, seccomp] = await Promise.all(parts);
  const { live, names, startedContainers } = statePaths(stateDir);
  const maker: Maker = { owner: currentOwner(), sealKey };
  return {
    driver: dockerDriver({
      docker,
      maker,
      seccomp: { corral: seccomp },
      liveDir: live,
      startedDir: startedContainers,
      namesDir: names,
      // Only root may enter a network. The variable is for tests: both ways enforce the same.
      listensByContainer: process.getuid?.() !== 0 || engineEnv.CORRAL_LISTEN_BY_CONTAINER === "1",
    }),
    // They are loaded when they are needed: most commands build no image.
    images: {
      status: async (imagesDir) => (await import("./images/status.ts")).imageStatus({ docker, stateDir, imagesDir }),
      build: async (request) =>
        (await import("./images/build-images.ts")).buildImages({ ...request, docker, stateDir }),
      make: async (request) => (await import("./images/made-images.ts")).makeImage(request, { docker, stateDir }),
      made: async () => (await import("./images/made-images.ts")).madeImages(docker),
      pull: async (reference, how) => (await import("./images/made-images.ts")).pullNamed(docker, reference, how),
      find: async (reference) => (await import("./images/made-images.ts")).findImage(docker, reference),
      remove: async (reference) => (await import("./images/made-images.ts")).removeImage(docker, reference),
    },
    gate: async () => await closedGate(await gateBinary({ docker, stateDir })),
    knownGate: async () => {
      const gate = await knownGate({ docker, stateDir });
      return gate === null ? null : await knownClosedGate(gate);
    },
    hostPlaces: { data: opened.dataDirs, sockets: socketPath === null ? [] : [socketPath] },
    description: describeEndpoint(endpoint),
    ground: {
      facts: { ...opened.facts, isLocal: socketPath !== null },
      savedImage: (id) => savedImage(docker, id),
    },
    maker,
    seccomp,
    examined: new ExaminedImages({ docker, maker, stateDir, seccomp }),
  };
}
