import type { Stage } from "../../changes/stage.ts";
import type { DiskBaseline } from "../../isolation/disk/disk-baseline.ts";
import { DiskWatch } from "../../isolation/disk/disk-watch.ts";
import type { Plan, PlannedMount } from "../../isolation/plan/plan.ts";
import type { Cell } from "../../isolation/port/cell.ts";
import type { Pins } from "../../isolation/sources/pin.ts";

/** One file may be as large as the limit, which the kernel holds it to; beside it there may be small ones. */
export const SMALL_FILES_BYTES = 1024 ** 2;

export interface WatchCompany {
  /** Told where the watch itself fails, which ends the run as if it had passed its limit. */
  readonly trouble: (detail: string) => void;
  /** What there was before the first of several cells that have one limit together. */
  readonly baseline?: DiskBaseline;
}

/** Watches all that a cell can write outside of its own memory: its staged mounts, and those that it writes directly. */
export async function watchDisk(
  plan: Plan,
  stage: Pick<Stage, "written">,
  pins: Pins,
  cell: Pick<Cell, "unnamedBytes">,
  { trouble, baseline }: WatchCompany,
): Promise<DiskWatch> {
  const direct = plan.mounts.filter(({ mode, staged, kind }) => mode === "rw" && !staged && kind === "directory");
  // What stands in another one is added up with that.
  const outer = direct.filter((mount) => !direct.some((other) => isInside(mount, other)));
  const pinned = new Set(outer.flatMap(({ host }) => pins.sources.get(host)?.descriptorPath ?? []));
  return await DiskWatch.start({
    places: [...pinned, ...stage.written],
    limitBytes: plan.limits.fileBytes + SMALL_FILES_BYTES,
    unnamedBytes: () => cell.unnamedBytes(),
    onFailure: (error) => trouble(unwatched(error)),
    ...(baseline === undefined ? {} : { baseline }),
  });
}

/** For people: why a run that may have written little ends as one that wrote too much. */
export function unwatched(error: unknown): string {
  return `what a run writes can not be watched any more, so it is ended: ${(error as Error).message}`;
}

function isInside({ host, identity }: PlannedMount, outer: PlannedMount): boolean {
  return identity.device === outer.identity.device && host.startsWith(`${outer.host}/`);
}
