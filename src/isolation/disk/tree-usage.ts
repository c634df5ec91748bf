import type { Descriptor } from "../../files/host/descriptor.ts";
import { listedUsage } from "./listed-usage.ts";
import type { TreeUsage } from "./usage-sum.ts";
import { walkedUsage } from "./walked-usage.ts";

/** Above this many names another program measures: it takes a quarter of the time and does not block this process. */
export const MANY_NAMES = 4000;

/**
 * Measures a tree without following links or entering mounts; stops early above `enough` bytes. Files of any device count,
 * because an overlay shows files of several.
 */
export async function treeUsage(root: Descriptor, enough: number, signal: AbortSignal): Promise<TreeUsage> {
  const few = await walkedUsage(root, { enough, names: MANY_NAMES }, signal);
  const many = few ?? (await listedUsage(root, enough, signal));
  return many ?? (await walkedUsage(root, { enough, names: Number.POSITIVE_INFINITY }, signal)) ?? UNKNOWN;
}

const UNKNOWN: TreeUsage = { bytes: 0, names: 0, complete: false };
