import { type CellMaker, type Driver, EngineAbsent } from "./port/driver.ts";
import { DriverUnavailableError, type EnginePort, EngineUnavailableError } from "./port/engine.ts";
import { ImageBuildError } from "./port/images.ts";

/** An engine that is opened when something first needs it. File tools need none. */
export interface LaterEngine {
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
