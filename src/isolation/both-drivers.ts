import type { Plan } from "./plan/plan.ts";
import { type CellInfo, type Driver, EngineTrouble, type Reaped, type Start } from "./port/driver.ts";
import { DriverUnavailableError, type Driving } from "./port/engine.ts";

/** What makes cells of a driver. */
export type CellMaker = Pick<Driver, "start" | "startSession" | "startServing">;

/** The driver beside the Engine's. */
export interface OtherDriver {
  /** Why it cannot carry this plan; null if it can. */
  objection(plan: Plan): Promise<string | null>;
  list(): Promise<CellInfo[]>;
  /** Answers with the runs whose cells were removed. */
  reap(): Promise<string[]>;
}

/** Which driver makes cells, with what makes them if it is not the Engine. `demanded`: no other may take its place. */
export interface Chosen {
  readonly driving: Driving;
  readonly cells: CellMaker | null;
  readonly demanded: boolean;
}

/**
 * One driver over both: each plan goes to the one that was chosen, or to the Engine if the other cannot carry it and was not
 * demanded. Cells of both are listed and reaped, whichever makes new ones.
 */
export function bothDrivers(engine: Driver, other: OtherDriver, choose: () => Promise<Chosen>): Driver {
  const starting = async (plan: Plan, start: (cells: CellMaker) => Promise<Start>): Promise<Start> => {
    const { driving, cells, demanded } = await choose();
    if (driving.driver === null) throw new EngineTrouble(new DriverUnavailableError(driving.why).message);
    if (cells === null) return await start(engine);
    const against = await other.objection(plan);
    if (against === null) return await start(cells);
    if (!demanded) return await start(engine);
    return {
      ok: false,
      violations: [
        { code: "ENFORCEMENT_MISSING", missing: [`${driving.driver}, which CORRAL_DRIVER asks for: ${against}`] },
      ],
    };
  };
  return {
    ...engine,
    start: (request) => starting(request.plan, (cells) => cells.start(request)) as ReturnType<Driver["start"]>,
    startSession: (request) =>
      starting(request.plan, (cells) => cells.startSession(request)) as ReturnType<Driver["startSession"]>,
    startServing: (request) =>
      starting(request.plan, (cells) => cells.startServing(request)) as ReturnType<Driver["startServing"]>,
    list: async () => (await Promise.all([engine.list(), other.list()])).flat(),
    reap: () => reapBoth(engine, other),
  };
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
