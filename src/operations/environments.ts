import {
  removeEnvironment,
  removeUnfinished,
  type StoredEnvironment,
  storedEnvironments,
} from "../state/stored-environments.ts";
import type { Machine } from "./machine.ts";

/** The packages that were prepared for the workers of all projects, the least recently used first. */
export async function listEnvironments({ stateDir }: Pick<Machine, "stateDir">): Promise<StoredEnvironment[]> {
  return await storedEnvironments(stateDir);
}

/**
 * Removes those that no process has used for this long and that none uses now, and what dead processes left unfinished. A run
 * that needs one again prepares it again. Returns what was removed.
 */
export async function removeUnusedEnvironments(
  { stateDir }: Pick<Machine, "stateDir">,
  {
    unusedMs,
    now = Date.now(),
    dryRun = false,
  }: { readonly unusedMs: number; readonly now?: number; readonly dryRun?: boolean },
): Promise<StoredEnvironment[]> {
  if (!dryRun) await removeUnfinished(stateDir);
  const removed: StoredEnvironment[] = [];
  for (const one of await storedEnvironments(stateDir)) {
    if (now - one.usedAt < unusedMs) continue;
    if (dryRun || (await removeEnvironment(stateDir, one.digest))) removed.push(one);
  }
  return removed;
}
