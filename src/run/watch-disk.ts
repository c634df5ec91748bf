import type { Stage } from "../changes/stage.ts";
import type { Cell } from "../isolation/cell.ts";
import { DiskWatch } from "../isolation/disk/disk-watch.ts";
import type { Pins } from "../isolation/pin.ts";
import type { Plan } from "../isolation/plan.ts";

/** One file may be as large as the limit, which the kernel holds it to; beside it there may be small ones. */
const SMALL_FILES_BYTES = 1024 ** 2;

/** Watches all that a cell can write outside of its own memory: its staged mounts, and those that it writes directly. */
export async function watchDisk(
  plan: Plan,
  stage: Pick<Stage, "written">,
  pins: Pins,
  cell: Pick<Cell, "unnamedBytes">,
): Promise<DiskWatch> {
  const direct = plan.mounts.filter(({ mode, staged, kind }) => mode === "rw" && !staged && kind === "directory");
  const pinned = direct.flatMap(({ host }) => pins.sources.get(host)?.descriptorPath ?? []);
  return await DiskWatch.start({
    places: [...pinned, ...stage.written],
    limitBytes: plan.limits.fileBytes + SMALL_FILES_BYTES,
    unnamedBytes: () => cell.unnamedBytes(),
  });
}
