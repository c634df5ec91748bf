import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { parseJson } from "../../../json/parse-json.ts";
import { nullFor } from "../../../platform/errno.ts";
import { isDead } from "../../../state/owner.ts";
import { findControlGroup } from "../../kernel/control-group.ts";
import type { CellUsageNow } from "../../port/cell.ts";
import type { CellInfo } from "../../port/driver.ts";
import { type Maker, readLabels } from "../../port/labels.ts";
import { cellId, cellPaths, cgroupPlace, DRAFT_PREFIX, type RuncPaths } from "../model/layout.ts";

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
