import type { WorkerDefinition } from "../../src/declarations/worker/worker.ts";
import { openFleetStore } from "../../src/fleet/fleet-stores.ts";
import type { FleetStore } from "../../src/fleet/model/store.ts";
import type { RunEvent } from "../../src/index.ts";
import type { Plan } from "../../src/isolation/plan/plan.ts";
import { type Corral, openCorral } from "../../src/run/open/corral.ts";
import { type DriverName, oursOn } from "../outcome/names.ts";
import { runFromLibrary } from "./cold-run.ts";
import type { AbsentPeer } from "./peer.ts";

/** Corral on one of its drivers, with a state directory of its own. Disposing closes it. */
export interface Ours extends AsyncDisposable {
  readonly driver: DriverName;
  readonly projectDir: string;
  readonly stateDir: string;
  readonly corral: Corral;
  /** Of its first run. */
  readonly plan: Plan;
  readonly store: FleetStore;
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
  const isRuntime = driver === "runc" || driver === "crun";
  const made = isRuntime ? "runc" : driver;
  const runtime = isRuntime ? { CORRAL_OCI_RUNTIME: driver } : {};
  const env = { ...process.env, ...runtime, CORRAL_DRIVER: made, CORRAL_STATE_DIR: stateDir };
  const name = oursOn(driver);
  const emit = (event: RunEvent): void => {
    for (const listener of listeners) listener(event);
  };
  let corral: Corral;
  try {
    corral = await openCorral({ projectDir, stateDir, engineEnv: env, emit });
  } catch (error) {
    return { name, absent: (error as Error).message };
  }
  opening.use(corral);
  const worker: Ours["worker"] = (named) => {
    const found = corral.project.workers.get(named);
    if (found === undefined) throw new Error(`the bench's project has no worker ${named}`);
    return found;
  };
  const watch: Ours["watch"] = (listener) => {
    listeners.add(listener);
    return { [Symbol.dispose]: () => void listeners.delete(listener) };
  };
  const { plan, by } = await firstRun({ corral, worker, watch });
  if (by !== made) return { name, absent: `its first run was made by the driver ${by}` };
  const store = opening.use(await openFleetStore(stateDir, corral.project.dir, {}));
  const moved = opening.move();
  return {
    driver,
    projectDir,
    stateDir,
    corral,
    plan,
    store,
    env,
    row: (what) => `${name}: ${what}`,
    worker,
    watch,
    [Symbol.asyncDispose]: () => moved.disposeAsync(),
  };
}

/** The plan of a run, and the driver that made its cell: a contender is what it is called. */
async function firstRun(
  ours: Pick<Ours, "corral" | "worker" | "watch">,
): Promise<{ readonly plan: Plan; readonly by: Exclude<DriverName, "crun"> }> {
  const started: { readonly plan: Plan; readonly by: Exclude<DriverName, "crun"> }[] = [];
  using _ = ours.watch((event) => {
    if (event.type === "started") started.push({ plan: event.plan, by: event.driver });
  });
  await runFromLibrary(ours);
  const [first] = started;
  if (first === undefined) throw new Error("the bench's first run had no container");
  return first;
}
