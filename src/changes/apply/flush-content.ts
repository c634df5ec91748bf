import fs from "node:fs";
import PQueue from "p-queue";
import { sync } from "../../files/host/content.ts";
import { hasCode } from "../../platform/errno.ts";
import type { Changeset } from "../model/changeset.ts";
import { OpenMounts, openContent } from "./open-mounts.ts";
import { isVerdict } from "./verdict.ts";

/** Files that are flushed at once. */
const AT_ONCE = 8;

/**
 * Flushes the run's own versions of files to the disk, so that another process finds what was checked after a power failure. What is
 * not as it was checked is left out: its application refuses it.
 */
export async function flushContent(changeset: Pick<Changeset, "mounts" | "changes">): Promise<void> {
  using mounts = new OpenMounts(changeset);
  const flushing = new PQueue({ concurrency: AT_ONCE });
  const files = changeset.changes.filter(({ kind, type }) => kind !== "delete" && type === "file");
  const flush = async (change: (typeof files)[number]): Promise<void> => {
    const content = openContent(change, mounts);
    if (isVerdict(content)) return;
    using _ = content;
    try {
      using file = content.descriptor.reopen(fs.constants.O_RDONLY);
      await sync(file);
    } catch (error) {
      // A file that Corral may not read cannot be applied either.
      if (!hasCode(error, "EACCES")) throw error;
    }
  };
  await flushing.addAll(files.map((change) => () => flush(change)));
}
