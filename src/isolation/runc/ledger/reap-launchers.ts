import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../../platform/errno.ts";
import { isDead, type Owner, parseOwner } from "../../../state/owner.ts";
import { ownerOfLauncher, type RuncPaths } from "../model/layout.ts";
import { endStarters } from "../remains/starters.ts";

/** More launchers than any machine runs; the rest is left for the next time. */
const MAX_LAUNCHERS = 10_000;

/**
 * Ends the launchers of owners that are certainly dead. They end by themselves, but one that was just asked for a cell would
 * still start it. So this comes before the cells: a runc that was started already has the directory of its cell.
 */
export async function reapLaunchers({ launchers }: RuncPaths, self: Owner): Promise<void> {
  const names = (await readdir(launchers).catch(nullFor("ENOENT"))) ?? [];
  for (const name of names.slice(0, MAX_LAUNCHERS)) {
    const owner = parseOwner(ownerOfLauncher(name) ?? "");
    if (owner === null || !isDead(owner, self)) continue;
    const dir = join(launchers, name);
    await endStarters(dir);
    await rm(dir, { recursive: true, force: true });
  }
}
