import type { Descriptor } from "../../files/host/descriptor.ts";
import { listedUsage } from "./listed-usage.ts";
import type { TreeUsage } from "./usage-sum.ts";
import { walkedUsage } from "./walked-usage.ts";

/** From so many names on, another program adds up: it takes a quarter of the time, and holds nobody up. */
export const MANY_NAMES = 4000;

/**
 * Adds up a tree without following links or going into what is mounted in it; stops early above `enough` bytes. Files
 * count on whatever device they are: an overlay shows those of several.
 */
export async function treeUsage(root: Descriptor, enough: number, signal: AbortSignal): Promise<TreeUsage> {
  const few = await walkedUsage(root, { enough, names: MANY_NAMES }, signal);
  const many = few ?? (await listedUsage(root, enough, signal));
  return many ?? (await walkedUsage(root, { enough, names: Number.POSITIVE_INFINITY }, signal)) ?? UNKNOWN;
}

const UNKNOWN: TreeUsage = { bytes: 0, names: 0, complete: false };
