import { randomBytes } from "node:crypto";
import fs from "node:fs";
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
 * the cell later can be found by them if this process dies. Each call takes microseconds, and a turn of a thread for it takes longer.
 */
export function makeCellFolder(paths: RuncPaths, maker: Maker, plan: Plan): CellPaths {
  fs.mkdirSync(paths.cells, { recursive: true, mode: 0o700 });
  const draft = cellPaths(join(paths.cells, `${DRAFT_PREFIX}${randomBytes(6).toString("hex")}`));
  const cell = cellPaths(join(paths.cells, plan.run));
  fs.mkdirSync(draft.dir, { mode: 0o700 });
  try {
    const labels = labelsFor(maker, "cell", cellId(maker.sealKey, plan.run), plan);
    fs.writeFileSync(draft.labels, JSON.stringify(labels), { mode: 0o600 });
    if (!plan.hardening.readOnlyRoot) fs.mkdirSync(draft.over, { mode: 0o700 });
    fs.renameSync(draft.dir, cell.dir);
    return cell;
  } catch (error) {
    fs.rmSync(draft.dir, { recursive: true, force: true });
    if (hasCode(error, "ENOTEMPTY", "EEXIST"))
      throw new CellNameTaken(`the name of the run ${plan.run} is already in use`, { cause: error });
    throw error;
  }
}
