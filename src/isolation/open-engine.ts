import { DRIVER_CHOICES, type DriverChoice, driverOfBoth } from "../sandbox/driver-choice.ts";
import type { Violation, ViolationCode } from "../sandbox/violation.ts";
import { makeStateDir } from "../state/state-dir.ts";
import { present } from "../text/present.ts";
import { openDockerEngine } from "./engine/open.ts";
import type { Plan } from "./plan/plan.ts";
import type { CellUsageNow } from "./port/cell.ts";
import {
  type CellInfo,
  type CellMaker,
  type Driver,
  EngineAbsent,
  EngineTrouble,
  type Reaped,
  type Start,
} from "./port/driver.ts";
import {
  DriverUnavailableError,
  type DriverUse,
  type Driving,
  type EnginePort,
  EngineUnavailableError,
  type OpenEngineRequest,
} from "./port/engine.ts";
import { BASE_NAME, type EngineImages, IMAGE_PREFIX, ImageBuildError } from "./port/images.ts";
import { runtimesToTry } from "./runc/ground/conditions.ts";
import { type ProbeNeeds, Runc, type Usable } from "./runc/open.ts";

/** The driver beside the Engine's. */
interface OtherDriver {
  /** Why it cannot carry this plan; null if it can. */
  objection(plan: Plan): Promise<string | null>;
  /** False while its image is still being unpacked, or is not worth it yet. `objection` waits for that. */
  isAtHand(plan: Plan): Promise<boolean>;
  list(): Promise<CellInfo[]>;
  usage(id: string): CellUsageNow | null;
  /** Answers with the runs whose cells were removed. */
  reap(): Promise<string[]>;
  /** Ends what it prepares for later cells. */
  close(): void;
}

/** What images have that cells must not, whichever driver makes them. */
interface ImageJudge {
  /** Why no cell of the plan's image is made; null if there is no reason. */
  objection(plan: Plan): Promise<Violation | null>;
  /** The plan with a name for the cell's user, if the image has none for that number. */
  named(plan: Plan): Promise<Plan>;
  /** Why the Engine did not make mounts where they were planned, if that is the image's doing; else null. */
  obstacle(plan: Plan): Promise<Violation | null>;
}

/** Which driver makes cells, with what makes them if it is not the Engine. */
interface Chosen {
  readonly driving: Driving;
  readonly cells: CellMaker | null;
  /** The Engine makes cells of a large image until it is unpacked. */
  readonly waitsForNoImage?: boolean;
  /** What asks for this driver alone, so that no other may take its place: a setting, or a policy. Absent: nothing does. */
  readonly demandedBy?: string;
}

/** A choice, and what made it. */
interface DriverWish {
  readonly choice: DriverChoice;
  readonly setting: string;
}

/** Refusals of a cell whose mounts are not where they were planned. */
const OF_MOUNTS: ReadonlySet<ViolationCode> = new Set(["MOUNT_SOURCE_REFUSED", "ENFORCEMENT_MISSING"]);

/**
 * One driver over both: each plan goes to the one that was chosen, or to the Engine if the other cannot carry it and was not
 * demanded. Cells of both are listed and reaped, whichever makes new ones.
 */
export function bothDrivers(
  engine: Driver,
  other: OtherDriver,
  { choose, images }: { readonly choose: (plan: Plan) => Promise<Chosen>; readonly images: ImageJudge },
): Driver {
  const onEngine = async (plan: Plan, start: (cells: CellMaker) => Promise<Start>): Promise<Start> => {
    const started = await start(engine).catch((error: unknown) => {
      if (error instanceof EngineTrouble) return error;
      throw error;
    });
    if (
      !(started instanceof EngineTrouble) &&
      (started.ok || !started.violations.some(({ code }) => OF_MOUNTS.has(code)))
    )
      return started;
    const obstacle = await images.obstacle(plan).catch(() => null);
    if (obstacle !== null) return { ok: false, violations: [obstacle] };
    if (started instanceof EngineTrouble) throw started;
    return started;
  };
  const starting = async <Request extends { readonly plan: Plan }>(
    asked: Request,
    startWith: (cells: CellMaker, request: Request) => Promise<Start>,
  ): Promise<Start> => {
    // Both may make a cell of their own, the first time. Nothing is left behind that still makes one.
    const [chosen, judged] = await Promise.allSettled([choose(asked.plan), images.objection(asked.plan)]);
    if (chosen.status === "rejected") throw chosen.reason;
    const { driving, cells, demandedBy, waitsForNoImage = false } = chosen.value;
    if (driving.driver === null) {
      if (demandedBy === POLICY) return unfulfilled(driving.why);
      throw new EngineTrouble(new DriverUnavailableError(driving).message);
    }
    if (judged.status === "rejected") throw judged.reason;
    const refused = judged.value;
    if (refused !== null) return { ok: false, violations: [refused] };
    const plan = await images.named(asked.plan);
    const start = (maker: CellMaker): Promise<Start> => startWith(maker, { ...asked, plan });
    if (cells === null || (waitsForNoImage && !(await other.isAtHand(plan)))) return await onEngine(plan, start);
    const against = await other.objection(plan);
    if (against === null) return await start(cells);
    if (demandedBy === undefined) return await onEngine(plan, start);
    return unfulfilled(`${driving.driver}, which ${demandedBy} asks for: ${against}`);
  };
  return {
    ...engine,
    start: (request) => starting(request, (cells, named) => cells.start(named)) as ReturnType<Driver["start"]>,
    startSession: (request) =>
      starting(request, (cells, named) => cells.startSession(named)) as ReturnType<Driver["startSession"]>,
    startServing: (request) =>
      starting(request, (cells, named) => cells.startServing(named)) as ReturnType<Driver["startServing"]>,
    list: async () => (await Promise.all([engine.list(), other.list()])).flat(),
    removeLeft: async () => {
      other.close();
      await engine.removeLeft();
    },
    usage: async (cell) => (cell.driver === "engine" ? await engine.usage(cell) : other.usage(cell.id)),
    reap: () => reapBoth(engine, other),
  };
}

const POLICY = "`driver` of the policy";

function unfulfilled(missing: string): Start & { ok: false } {
  return { ok: false, violations: [{ code: "ENFORCEMENT_MISSING", missing: [missing] }] };
}

/**
 * The other's cells first: what is left of an owner's directory goes when all that could use it has ended. The Engine is asked
 * meanwhile what it has.
 */
async function reapBoth(engine: Driver, other: OtherDriver): Promise<Reaped> {
  const first = other.reap();
  const [ours, theirs] = await Promise.allSettled([first, engine.reap(first)]);
  if (theirs.status === "rejected") throw theirs.reason;
  if (ours.status === "rejected") throw ours.reason;
  return { ...theirs.value, cells: [...ours.value, ...theirs.value.cells] };
}

/**
 * Opens the engine of this machine in this process's name, and makes the state directory if it is missing and needed. The one
 * place that chooses what makes cells; everything else knows it by its port.
 *
 * @throws StateDirError if the state directory cannot be used, EngineUnavailableError if no engine answers, or if `CORRAL_DRIVER`
 *   has no such value.
 */
export async function openEngine(request: OpenEngineRequest): Promise<EnginePort> {
  const { stateDir, engineEnv, looksOnly = false, triesAgain = false } = request;
  const chosenHere = driverChoice(engineEnv);
  // It needs no engine. It is loaded only then.
  if (chosenHere === "seatbelt")
    throw new EngineUnavailableError(NO_CELLS, { reason: "setting", source: null, cause: null });
  if (chosenHere === "bwrap") return await (await import("./bwrap/open.ts")).openBwrap(request);
  const made = looksOnly ? Promise.resolve() : makeStateDir(stateDir);
  const { ground, maker, seccomp, examined, ...engine } = await openDockerEngine(request, made);
  const needs: ProbeNeeds = {
    image: () => engine.driver.imageFacts(`${IMAGE_PREFIX}/${BASE_NAME}`),
    gate: () => engine.gate(),
    triesAgain,
  };
  const runtimes = runtimesToTry(engineEnv.CORRAL_OCI_RUNTIME);
  const runc = new Runc({ stateDir, maker, seccomp, ground, needs, runtimes });
  let tried: Promise<Usable | null> | null = null;
  const choose = async (use: DriverUse, own: DriverWish, policy: DriverChoice | undefined): Promise<Chosen> => {
    const wish = wishOfBoth(own, policy);
    if (wish === null) return contradicting(own, policy);
    const { choice, setting } = wish;
    if (choice === "seatbelt")
      return {
        driving: { driver: null, why: `${setting} is seatbelt. ${NO_CELLS}`, setting },
        cells: null,
        demandedBy: setting,
      };
    if (choice === "bwrap") return beside(setting);
    if (choice === "engine")
      return { driving: { driver: "engine", why: `${setting} is engine` }, cells: null, demandedBy: setting };
    if (choice === "auto" && use === "runs") return BY_DEFAULT;
    tried ??= looksOnly ? runc.known() : usableOr(runc);
    const usable = await tried;
    return usable === null ? foreseen(wish) : chosenBy(wish, usable);
  };
  const drivenBy = (own: DriverWish): EnginePort => {
    const driverFor = (use: DriverUse): Driver =>
      bothDrivers(engine.driver, runc, {
        choose: ({ hardening }) => choose(use, own, hardening.driver),
        images: examined,
      });
    return {
      ...engine,
      images: { ...engine.images, remove: (reference) => removeImage(reference, engine.images, runc) },
      driver: driverFor("runs"),
      itemCells: driverFor("items"),
      driving: async (use, policy) => (await choose(use, own, policy)).driving,
      ofProject: (driver) => drivenBy(chosenHere === null ? wishOf(driver, "`driver` of corral.yaml") : own),
      unpacked: runc.images,
    };
  };
  return drivenBy(wishOf(chosenHere ?? undefined, HERE));
}

const HERE = "CORRAL_DRIVER or --driver";

function wishOf(choice: DriverChoice | undefined, setting: string): DriverWish {
  return { choice: choice ?? "auto", setting };
}

/** Null if nothing is chosen. */
function driverChoice({ CORRAL_DRIVER: raw = "" }: OpenEngineRequest["engineEnv"]): DriverChoice | null {
  if (raw === "") return null;
  const known = DRIVER_CHOICES.find((choice) => choice === raw);
  if (known !== undefined) return known;
  const message = `CORRAL_DRIVER is ${JSON.stringify(raw.slice(0, 40))}, and must be one of: ${DRIVER_CHOICES.join(", ")}`;
  throw new EngineUnavailableError(message, { reason: "setting", source: null, cause: null });
}

/** What a policy asks for is never less than asked; null if nothing is both. */
function wishOfBoth(own: DriverWish, policy: DriverChoice = "auto"): DriverWish | null {
  const choice = driverOfBoth(own.choice, policy);
  if (choice === null) return null;
  return choice === own.choice && policy !== choice ? own : wishOf(choice, policy === "auto" ? own.setting : POLICY);
}

function contradicting({ choice, setting }: DriverWish, policy: DriverChoice | undefined): Chosen {
  const why = `${POLICY} is ${policy}, and ${setting} is ${choice}`;
  return { driving: { driver: null, why }, cells: null, demandedBy: POLICY };
}

/** It was asked for when the Engine was open already. */
function beside(setting: string): Chosen {
  const why = `${setting} is bwrap, whose cells need no Engine: start Corral with CORRAL_DRIVER=bwrap or --driver bwrap`;
  return { driving: { driver: null, why, setting }, cells: null, demandedBy: setting };
}

const NO_CELLS =
  "Seatbelt makes no containers: on macOS, `corral run --driver seatbelt -- COMMAND` runs a command without one, and nothing else does";

const BY_DEFAULT: Chosen = {
  driving: { driver: "engine", why: "the default, since Docker's tools show its containers" },
  cells: null,
};

/** What is missing for the probe is a reason, too. */
async function usableOr(runc: Runc): Promise<Usable> {
  try {
    return await runc.usable();
  } catch (error) {
    if (error instanceof ImageBuildError) return { ok: false, why: `runc cannot make cells here: ${error.message}` };
    throw error;
  }
}

/** `runc` is never replaced without a word: if it is demanded and cannot be used, nothing starts. */
function chosenBy({ choice, setting }: DriverWish, usable: Usable): Chosen {
  const demand = choice === "runc" ? { demandedBy: setting } : {};
  if (usable.ok) {
    const why = choice === "runc" ? `${setting} is runc, and ${usable.why}` : usable.why;
    return { driving: { driver: "runc", why }, cells: usable.cells, waitsForNoImage: choice === "auto", ...demand };
  }
  if (choice !== "runc") return { driving: { driver: "engine", why: usable.why }, cells: null };
  return {
    driving: { driver: null, why: usable.why, ...present({ setting: setting === HERE ? undefined : setting }) },
    cells: null,
    ...demand,
  };
}

/** For what only looks: nothing is tried. */
function foreseen({ choice, setting }: DriverWish): Chosen {
  const unknown = "the first one makes a cell to find out, and else uses the Engine";
  return choice === "runc"
    ? { driving: { driver: "runc", why: `${setting} is runc` }, cells: null, demandedBy: setting }
    : { driving: { driver: "runc", why: unknown }, cells: null };
}

/** What was unpacked of it for cells of runc goes first, unless a process uses it. */
async function removeImage(reference: string, images: EngineImages, runc: Runc): Promise<boolean> {
  const found = await images.find(reference);
  if (found !== null && (await runc.images.letGo({ imageId: found.id })).inUse.length > 0)
    throw new ImageBuildError(reference, "a running Corral still uses it; try again when that has ended");
  return await images.remove(reference);
}

/** An engine that is opened when something first needs it. File tools need none. */
interface LaterEngine {
  readonly port: EnginePort;
  /**
   * Opens it now. If that fails, the next use tries again.
   *
   * @throws what `open` throws.
   */
  ready(): Promise<EnginePort>;
}

/** `opened` is called once, before anything else is done with the engine. */
export function laterEngine(
  open: () => Promise<EnginePort>,
  opened: (engine: EnginePort) => Promise<void>,
): LaterEngine {
  let engine: EnginePort | null = null;
  let opening: Promise<EnginePort> | null = null;
  const ready = async (): Promise<EnginePort> => {
    opening ??= open().then(async (made) => {
      await opened(made);
      engine = made;
      return made;
    });
    const now = opening;
    return await now.catch((error: unknown) => {
      if (opening === now) opening = null;
      throw error;
    });
  };
  /** What a run or a tool asks for: it is told that there is no engine as if the engine had failed. */
  const needed = async (): Promise<EnginePort> => {
    try {
      return await ready();
    } catch (error) {
      if (!isAbsence(error)) throw error;
      throw new EngineAbsent(error.message, { cause: error });
    }
  };
  const cells = (which: (port: EnginePort) => CellMaker): CellMaker => ({
    start: async (request) => await which(await needed()).start(request),
    startSession: async (request) => await which(await needed()).startSession(request),
    startServing: async (request) => await which(await needed()).startServing(request),
  });
  const driver: Driver = {
    get name() {
      return engine?.driver.name ?? "none";
    },
    ...cells((port) => port.driver),
    capabilities: async () => await (await needed()).driver.capabilities(),
    imageFacts: async (image) => await (await needed()).driver.imageFacts(image),
    startSteward: async (request) => await (await needed()).driver.startSteward(request),
    list: async () => await (await needed()).driver.list(),
    usage: async (cell) => await (await needed()).driver.usage(cell),
    reap: async (after) => await (await needed()).driver.reap(after),
    // What was never opened has made nothing.
    removeLeft: async () => await engine?.driver.removeLeft(),
  };
  const port: EnginePort = {
    driver,
    itemCells: cells((one) => one.itemCells),
    images: {
      status: async (dir) => await (await needed()).images.status(dir),
      build: async (request) => await (await needed()).images.build(request),
      make: async (request) => await (await needed()).images.make(request),
      made: async () => await (await needed()).images.made(),
      pull: async (reference, request) => await (await needed()).images.pull(reference, request),
      find: async (reference) => await (await needed()).images.find(reference),
      remove: async (reference) => await (await needed()).images.remove(reference),
    },
    gate: async () => await (await needed()).gate(),
    knownGate: async () => await (await needed()).knownGate(),
    get hostPlaces() {
      return engine?.hostPlaces ?? { data: [], sockets: [] };
    },
    driving: async (use, policy) => await (await needed()).driving(use, policy),
    ofProject: () => port,
    unpacked: {
      use: async (imageId) => await (await needed()).unpacked.use(imageId),
      measure: async () => await (await needed()).unpacked.measure(),
      letGo: async (request) => await (await needed()).unpacked.letGo(request),
    },
    description: "the container engine, which nothing has needed yet",
  };
  return { port, ready };
}

function isAbsence(error: unknown): error is Error {
  return [EngineUnavailableError, DriverUnavailableError, ImageBuildError].some((kind) => error instanceof kind);
}
