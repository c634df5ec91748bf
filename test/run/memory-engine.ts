import type { EnginePort } from "../../src/isolation/port/engine.ts";
import type { EngineImages } from "../../src/isolation/port/images.ts";
import { currentOwner, loadSealKey } from "../../src/state/owner.ts";
import { type FakeDriverOptions, fakeDriver } from "../isolation/fake/driver.ts";
import { type FakeEngine, fakeEngine } from "../isolation/fake/engine.ts";

const fails = async (): Promise<never> => {
  throw new Error("an engine in memory makes no images");
};
const noImages: EngineImages = {
  status: async () => [],
  build: async () => [],
  made: async () => [],
  find: async () => null,
  remove: async () => false,
  make: fails,
  pull: fails,
};

/** An engine in memory, for a project of tests that need no real one. */
export interface MemoryEngine {
  readonly open: (stateDir: string) => Promise<EnginePort>;
  /** What cells there are now. */
  readonly containers: FakeEngine["containers"];
}

/** `programs`: what a worker does, by the first word of its command. */
export function memoryEngine(options: Pick<FakeDriverOptions, "programs" | "deviate">): MemoryEngine {
  const engine = fakeEngine();
  return {
    containers: engine.containers,
    async open(stateDir) {
      const maker = { owner: currentOwner(), sealKey: await loadSealKey(stateDir) };
      const driver = fakeDriver({ ...options, engine, maker });
      const port: EnginePort = {
        driver,
        itemCells: driver,
        images: noImages,
        // Any file will do: no kernel runs it.
        gate: async () => import.meta.filename,
        knownGate: async () => import.meta.filename,
        hostPlaces: { data: [], sockets: [] },
        driving: async () => ({ driver: "engine", why: "there is no other" }),
        unpacked: {
          use: async () => null,
          measure: async () => ({ count: 0, bytes: 0 }),
          letGo: async () => ({ letGo: [], inUse: [], bytes: 0 }),
        },
        description: "an engine in memory",
        ofProject: () => port,
      };
      return port;
    },
  };
}
