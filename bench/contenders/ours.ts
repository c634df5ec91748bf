import type { WorkerDefinition } from "../../src/declarations/worker/worker.ts";
import type { FleetJournal } from "../../src/fleet/journal/journal.ts";
import { openJournal } from "../../src/fleet/open-journal.ts";
import type { RunEvent } from "../../src/index.ts";
import { type Corral, openCorral } from "../../src/run/open/corral.ts";
import { DRIVER_NAMES, type DriverName, oursOn } from "../outcome/names.ts";
import type { AbsentPeer } from "./peer.ts";

/** Corral on one of its drivers, with a state directory of its own. Disposing closes it. */
export interface Ours extends AsyncDisposable {
  readonly driver: DriverName;
  readonly projectDir: string;
  readonly stateDir: string;
  readonly corral: Corral;
  readonly journal: FleetJournal;
  /** The environment of the command line, so that it uses the same driver and state. */
  readonly env: NodeJS.ProcessEnv;
  /** The name of a row of its own. */
  row(what: string): string;
  worker(name: string): WorkerDefinition;
  /** Calls the listener with every event of every run from now on, until disposed. */
  watch(listener: (event: RunEvent) => void): Disposable;
}

/** Opens the bench's project on this driver, or says why it cannot be used here. */
export async function openOurs(driver: DriverName, projectDir: string, stateDir: string): Promise<Ours | AbsentPeer> {
  await using opening = new AsyncDisposableStack();
  const listeners = new Set<(event: RunEvent) => void>();
  const env = { ...process.env, CORRAL_DRIVER: driver, CORRAL_STATE_DIR: stateDir };
  const name = oursOn(driver);
  let corral: Corral;
  try {
    corral = await openCorral({
      projectDir,
      stateDir,
      engineEnv: env,
      emit(event) {
        for (const listener of listeners) listener(event);
      },
    });
  } catch (error) {
    return { name, absent: (error as Error).message };
  }
  opening.use(corral);
  const found = corral.environment.driver.name;
  if (found !== DRIVER_NAMES[driver]) return { name, absent: `Corral opened its driver ${found} in its place` };
  const journal = opening.use(await openJournal(stateDir, corral.project.dir));
  const moved = opening.move();
  return {
    driver,
    projectDir,
    stateDir,
    corral,
    journal,
    env,
    row: (what) => `${name}: ${what}`,
    worker(named) {
      const worker = corral.project.workers.get(named);
      if (worker === undefined) throw new Error(`the bench's project has no worker ${named}`);
      return worker;
    },
    watch(listener) {
      listeners.add(listener);
      return { [Symbol.dispose]: () => void listeners.delete(listener) };
    },
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}
