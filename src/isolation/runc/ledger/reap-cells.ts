import { randomBytes } from "node:crypto";
import { readdir, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { removeTree } from "../../../files/host/system-program.ts";
import { parseJson } from "../../../json/parse-json.ts";
import { nullFor } from "../../../platform/errno.ts";
import { formatOwner, isDead, type Owner, parseOwner } from "../../../state/owner.ts";
import { findControlGroup } from "../../kernel/control-group.ts";
import type { CellUsageNow } from "../../port/cell.ts";
import { type CellInfo, EngineTrouble } from "../../port/driver.ts";
import { type Maker, readLabels } from "../../port/labels.ts";
import {
  cellId,
  cellPaths,
  cgroupPlace,
  DRAFT_PREFIX,
  launcherName,
  ownerOfLauncher,
  type RuncPaths,
} from "../model/layout.ts";
import { endStarters, removeCell } from "../remains/remove-cell.ts";

/** More cells than any machine runs; the rest is not read. */
const MAX_CELLS = 100_000;
const RUN = /^[0-9a-zA-Z-]{1,64}$/;
const Labels = z.record(z.string(), z.string());

/** Every cell of runc that this state directory's orchestrators made, in any state. */
export async function recordedCells(paths: RuncPaths, maker: Maker): Promise<CellInfo[]> {
  const names = (await readdir(paths.cells).catch(nullFor("ENOENT"))) ?? [];
  const cells = await Promise.all(
    names
      .filter((name) => RUN.test(name) && !name.startsWith(DRAFT_PREFIX))
      .slice(0, MAX_CELLS)
      .map((run) => recordedCell(run, paths, maker)),
  );
  return cells.filter((cell) => cell !== null);
}

/** Null if it was removed meanwhile, or if this state directory's key did not seal it. */
async function recordedCell(run: string, paths: RuncPaths, maker: Maker): Promise<CellInfo | null> {
  const { labels: file } = cellPaths(join(paths.cells, run));
  const id = cellId(maker.sealKey, run);
  const labels = Labels.safeParse(await jsonIn(file)).data;
  const labelled = readLabels(maker.sealKey, "cell", id, labels ?? null);
  if (labelled === null || labelled.run !== run) return null;
  const made = await stat(file).catch(nullFor("ENOENT"));
  if (made === null) return null;
  const group = findControlGroup([cgroupPlace(id)]);
  const state = (group?.processes().length ?? 0) > 0 ? "running" : "exited";
  return {
    ...labelled,
    driver: "runc",
    id,
    state,
    createdAt: made.mtime.toISOString(),
    ownerAlive: !isDead(labelled.owner, maker.owner),
  };
}

/** What a cell that runs uses now; null if it does not run. */
export function usageOfCell(id: string): CellUsageNow | null {
  const group = findControlGroup([cgroupPlace(id)]);
  const usage = group?.usage() ?? null;
  return group === null || usage === null ? null : { ...usage, memoryBytes: group.memoryBytes() };
}

async function jsonIn(file: string): Promise<unknown> {
  const text = await readFile(file, "utf8").catch(nullFor("ENOENT"));
  const parsed = parseJson(text ?? "");
  return parsed.ok ? parsed.value : undefined;
}

/** More launchers than any machine runs; the rest is left for the next time. */
const MAX_LAUNCHERS = 10_000;

/**
 * Ends the launchers of owners that are certainly dead. They end by themselves, but one that was just asked for a cell would
 * still start it. So this comes before the cells: a runc that was started already has the directory of its cell.
 */
async function reapLaunchers({ launchers }: RuncPaths, self: Owner): Promise<void> {
  const names = (await readdir(launchers).catch(nullFor("ENOENT"))) ?? [];
  for (const name of names.slice(0, MAX_LAUNCHERS)) {
    const owner = parseOwner(ownerOfLauncher(name) ?? "");
    if (owner === null || !isDead(owner, self)) continue;
    // One that the owner had only just forked finds its directory no more: it enters it by its name, and then begins its program.
    const ended = join(launchers, launcherName(formatOwner(owner), randomBytes(6).toString("hex")));
    if (!(await renamed(join(launchers, name), ended))) continue;
    await endStarters(ended, { isLauncher: true });
    await rm(ended, { recursive: true, force: true });
  }
}

/** False if another process that reaps has it. */
async function renamed(from: string, to: string): Promise<boolean> {
  return (await rename(from, to).then(() => true, nullFor("ENOENT"))) ?? false;
}

/** Nothing of a cell exists before its directory has its name, which takes some milliseconds. */
const DRAFT_MS = 10 * 60_000;

/** Removes the cells of owners that are certainly dead, and answers with their runs. One that cannot be removed does not stop the others. */
export async function reapRuncCells(maker: Maker, paths: RuncPaths): Promise<string[]> {
  const removed: string[] = [];
  const failures: Error[] = [];
  await reapLaunchers(paths, maker.owner);
  for (const { run, id, ownerAlive } of await recordedCells(paths, maker)) {
    if (ownerAlive) continue;
    try {
      const dir = join(paths.cells, run);
      await endStarters(dir, { id });
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
