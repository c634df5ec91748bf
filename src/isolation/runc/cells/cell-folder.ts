import { randomBytes } from "node:crypto";
import { mkdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { hasCode } from "../../../platform/errno.ts";
import type { Plan } from "../../plan/plan.ts";
import { EngineTrouble } from "../../port/driver.ts";
import { labelsFor, type Maker } from "../../port/labels.ts";
import { type CellPaths, cellId, cellPaths, DRAFT_PREFIX, type RuncPaths } from "../model/layout.ts";

/** The name of a run is that of another cell. */
export class CellNameTaken extends EngineTrouble {}

/**
 * Makes the directory of a cell, with its labels in it from the first moment in which it has its name: whatever is made for
 * the cell later can be found by them if this process dies.
 */
export async function makeCellFolder(paths: RuncPaths, maker: Maker, plan: Plan): Promise<CellPaths> {
  await mkdir(paths.cells, { recursive: true, mode: 0o700 });
  const draft = cellPaths(join(paths.cells, `${DRAFT_PREFIX}${randomBytes(6).toString("hex")}`));
  const cell = cellPaths(join(paths.cells, plan.run));
  await mkdir(draft.dir, { mode: 0o700 });
  try {
    const labels = labelsFor(maker, "cell", cellId(maker.sealKey, plan.run), plan);
    await writeFile(draft.labels, JSON.stringify(labels), { mode: 0o600 });
    if (!plan.hardening.readOnlyRoot) await mkdir(draft.over, { mode: 0o700 });
    await rename(draft.dir, cell.dir);
    return cell;
  } catch (error) {
    await rm(draft.dir, { recursive: true, force: true });
    if (hasCode(error, "ENOTEMPTY", "EEXIST"))
      throw new CellNameTaken(`the name of the run ${plan.run} is already in use`, { cause: error });
    throw error;
  }
}
