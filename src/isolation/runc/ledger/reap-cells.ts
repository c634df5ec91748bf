import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { removeTree } from "../../../files/host/remove-tree.ts";
import { nullFor } from "../../../platform/errno.ts";
import { EngineTrouble } from "../../port/driver.ts";
import type { Maker } from "../../port/labels.ts";
import { DRAFT_PREFIX, type RuncPaths } from "../model/layout.ts";
import { removeCell } from "../remains/remove-cell.ts";
import { endStarters } from "../remains/starters.ts";
import { reapLaunchers } from "./reap-launchers.ts";
import { recordedCells } from "./recorded-cells.ts";

/** Nothing of a cell exists before its directory has its name, which takes some milliseconds. */
const DRAFT_MS = 10 * 60_000;

/** Removes the cells of owners that are certainly dead, and answers with their runs. One that cannot be removed does not stop the others. */
export async function reapCells(maker: Maker, paths: RuncPaths): Promise<string[]> {
  const removed: string[] = [];
  const failures: Error[] = [];
  await reapLaunchers(paths, maker.owner);
  for (const { run, id, ownerAlive } of await recordedCells(paths, maker)) {
    if (ownerAlive) continue;
    try {
      const dir = join(paths.cells, run);
      await endStarters(dir, id);
      await removeCell(paths, id, dir);
      removed.push(run);
    } catch (error) {
      failures.push(error as Error);
    }
  }
  await removeDrafts(paths);
  const [first] = failures;
  if (first !== undefined) {
    const reasons = failures.map(({ message }) => message).join("; ");
    throw new EngineTrouble(`some cells of dead owners could not be removed: ${reasons}`, { cause: first });
  }
  return removed;
}

async function removeDrafts({ cells }: RuncPaths): Promise<void> {
  const names = (await readdir(cells).catch(nullFor("ENOENT"))) ?? [];
  for (const name of names.filter((one) => one.startsWith(DRAFT_PREFIX))) {
    const made = await stat(join(cells, name)).catch(nullFor("ENOENT"));
    if (made !== null && made.mtimeMs < Date.now() - DRAFT_MS) await removeTree(join(cells, name));
  }
}
