import { makeStateDir } from "../state/state-dir.ts";
import { bothDrivers, type Chosen } from "./both-drivers.ts";
import { openDockerEngine } from "./engine/open.ts";
import type { Driver } from "./port/driver.ts";
import {
  DRIVER_CHOICES,
  type DriverChoice,
  type DriverUse,
  type EnginePort,
  EngineUnavailableError,
  type OpenEngineRequest,
} from "./port/engine.ts";
import { BASE_NAME, type EngineImages, IMAGE_PREFIX, ImageBuildError } from "./port/images.ts";
import { type ProbeNeeds, Runc, type Usable } from "./runc/open.ts";

/**
 * Opens the engine of this machine in this process's name, and makes the state directory if it is missing and needed. The one
 * place that chooses what makes cells; everything else knows it by its port.
 *
 * @throws StateDirError if the state directory cannot be used, EngineUnavailableError if no engine answers, or if `CORRAL_DRIVER`
 *   has no such value.
 */
export async function openEngine(request: OpenEngineRequest): Promise<EnginePort> {
  const { stateDir, engineEnv, looksOnly = false, triesAgain = false } = request;
  const choice = driverChoice(engineEnv);
  const made = looksOnly ? Promise.resolve() : makeStateDir(stateDir);
  const { ground, maker, seccomp, examined, ...engine } = await openDockerEngine(request, made);
  const runc = new Runc({ stateDir, maker, seccomp, ground });
  const needs: ProbeNeeds = {
    image: () => engine.driver.imageFacts(`${IMAGE_PREFIX}/${BASE_NAME}`),
    gate: () => engine.gate(),
    triesAgain,
  };
  let asked: Promise<Chosen> | null = null;
  const choose = async (use: DriverUse): Promise<Chosen> => {
    if (choice === "engine")
      return { driving: { driver: "engine", why: "CORRAL_DRIVER is engine" }, cells: null, demanded: true };
    if (choice === "auto" && use === "runs") return BY_DEFAULT;
    asked ??= looksOnly ? foreseen(choice, runc) : usableOr(runc, needs).then((usable) => chosenBy(choice, usable));
    return await asked;
  };
  const driverFor = (use: DriverUse): Driver =>
    bothDrivers(engine.driver, runc, { choose: () => choose(use), images: examined });
  return {
    ...engine,
    images: { ...engine.images, remove: (reference) => removeImage(reference, engine.images, runc) },
    driver: driverFor("runs"),
    itemCells: driverFor("items"),
    driving: async (use) => (await choose(use)).driving,
    unpacked: runc.images,
  };
}

function driverChoice({ CORRAL_DRIVER: raw = "" }: OpenEngineRequest["engineEnv"]): DriverChoice {
  const known = DRIVER_CHOICES.find((choice) => choice === (raw || "auto"));
  if (known !== undefined) return known;
  const message = `CORRAL_DRIVER is ${JSON.stringify(raw.slice(0, 40))}, and must be one of: ${DRIVER_CHOICES.join(", ")}`;
  throw new EngineUnavailableError(message, { reason: "setting", source: null, cause: null });
}

const BY_DEFAULT: Chosen = {
  driving: { driver: "engine", why: "the default, since Docker's tools show its containers" },
  cells: null,
  demanded: false,
};

/** What is missing for the probe is a reason, too. */
async function usableOr(runc: Runc, needs: ProbeNeeds): Promise<Usable> {
  try {
    return await runc.usable(needs);
  } catch (error) {
    if (error instanceof ImageBuildError) return { ok: false, reason: error.message };
    throw error;
  }
}

/** `runc` is never replaced without a word: if it is demanded and cannot be used, nothing starts. */
function chosenBy(choice: DriverChoice, usable: Usable): Chosen {
  const demanded = choice === "runc";
  if (usable.ok) {
    const why = demanded ? "CORRAL_DRIVER is runc" : "a first cell was what was planned";
    return { driving: { driver: "runc", why }, cells: usable.cells, demanded };
  }
  const why = `runc cannot make cells here: ${usable.reason}`;
  return { driving: { driver: demanded ? null : "engine", why }, cells: null, demanded };
}

/** For what only looks: nothing is tried. */
async function foreseen(choice: DriverChoice, runc: Runc): Promise<Chosen> {
  const demanded = choice === "runc";
  const known = await runc.known();
  if (known !== null) return chosenBy(choice, known);
  const why = "the first one makes a cell to find out, and else uses the Engine";
  return { driving: { driver: "runc", why: demanded ? "CORRAL_DRIVER is runc" : why }, cells: null, demanded };
}

/** What was unpacked of it for cells of runc goes first, unless a process uses it. */
async function removeImage(reference: string, images: EngineImages, runc: Runc): Promise<boolean> {
  const found = await images.find(reference);
  if (found !== null && (await runc.images.letGo({ imageId: found.id })).inUse.length > 0)
    throw new ImageBuildError(reference, "a running Corral still uses it; try again when that has ended");
  return await images.remove(reference);
}
