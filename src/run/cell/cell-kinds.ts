import type { DiskBaseline } from "../../isolation/disk/disk-baseline.ts";
import type { Plan, PlannedMount } from "../../isolation/plan/plan.ts";
import type { Cell, ServingCell } from "../../isolation/port/cell.ts";
import type { Driver, Start, StartRequest } from "../../isolation/port/driver.ts";
import type { SessionCell } from "../../isolation/port/exec.ts";
import type { Pins } from "../../isolation/sources/pin.ts";
import type { CellUse } from "../model/events.ts";
import type { Plumbing } from "./prepare.ts";

/** The views of a run: which of its mounts are views, and the directories on the host that hold what is written to them. */
type StagedViews = { readonly paths: ReadonlySet<string>; readonly written: readonly string[] };

/** What differs between the kinds of cells. Everything else is the same for all of them (`openCell`). */
export interface CellKind<C extends Cell> {
  readonly use: CellUse;
  readonly start: (driver: Driver, request: Omit<StartRequest, "onOutput">) => Promise<Start<C>>;
  /** What its plan needs beside its sandbox. */
  readonly given: Omit<Plumbing, "socket">;
  /** False if its programs can ask Corral for nothing: then it has no socket. */
  readonly hasSocket: boolean;
  /** The directories outside of its own memory that it can write, each by a path that cannot lead elsewhere. */
  readonly written: (plan: Plan, pins: Pins) => readonly string[];
  /** What there was before the first of several cells that share one disk limit; absent: before this one. */
  readonly baseline?: DiskBaseline;
}

/** Runs a worker's command once. */
export function workerCell(stage: StagedViews, onOutput: StartRequest["onOutput"]): CellKind<Cell> {
  return {
    use: "command",
    start: (driver, request) => driver.start({ ...request, onOutput }),
    given: { views: stage },
    hasSocket: true,
    written: (plan, pins) => [...writtenDirectly(plan, pins), ...stage.written],
  };
}

/**
 * Runs a session's commands. `outputDir`: the directory with what they printed; `commandsDir`: of their pipes, if its first process
 * starts them.
 */
export function sessionCell(
  stage: StagedViews,
  dirs: Pick<Plumbing, "outputDir" | "commandsDir">,
  baseline: DiskBaseline,
): CellKind<SessionCell> {
  return {
    use: "session",
    start: (driver, request) => driver.startSession({ ...request, onOutput: () => {} }),
    given: { ...dirs, views: stage },
    hasSocket: true,
    written: (plan, pins) => [...writtenDirectly(plan, pins), ...stage.written],
    baseline,
  };
}

/**
 * Runs a worker's command for one item after another. `folder`: holds everything that the items can write. It has no socket:
 * descriptors that an item sends to it would wait there, and stay open, when every process of the item has ended.
 */
export function servingCell(items: Plumbing["items"] & object, folder: string): CellKind<ServingCell> {
  return {
    use: "items",
    start: (driver, request) => driver.startServing(request),
    given: { items, views: { paths: new Set() } },
    hasSocket: false,
    written: () => [folder],
  };
}

/** The directories that a cell writes without a view in between. One inside another is counted with the outer one. */
function writtenDirectly(plan: Plan, pins: Pins): Set<string> {
  const direct = plan.mounts.filter(({ mode, staged, kind }) => mode === "rw" && !staged && kind === "directory");
  const outer = direct.filter((mount) => !direct.some((other) => isInside(mount, other)));
  return new Set(outer.flatMap(({ host }) => pins.sources.get(host)?.descriptorPath ?? []));
}

function isInside({ host, identity }: PlannedMount, outer: PlannedMount): boolean {
  return identity.device === outer.identity.device && host.startsWith(`${outer.host}/`);
}
