import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { Descriptor, isRoot } from "../../files/host/descriptor.ts";
import { detachMount } from "../../files/host/kernel-mounts.ts";
import { runSystemProgram } from "../../files/host/system-program.ts";
import { likeFolder } from "./copy-tree.ts";

export interface Overlay {
  /** The directory together with what was written over it. */
  readonly merged: string;
  /** Only what was written: whole files, and 0:0 devices for deletions (docs/architecture.md, fact: overlay-volume). */
  readonly upper: string;
  unmount(): Promise<void>;
}

/** These kernel features are off: with them, only the kernel could read some changes. */
const OPTIONS = "nosuid,nodev,redirect_dir=off,metacopy=off,index=off";

/**
 * Lays a writable layer over a directory that is held open, in `dir`. Null if that is not possible: Corral is
 * not root, the file system does not support it, or the directory is already two overlays deep.
 */
export async function mountOverlay(lower: Descriptor, dir: string): Promise<Overlay | null> {
  // Only root can make a mount that the Engine also sees.
  if (!isRoot()) return null;
  const [upper, work, merged] = [join(dir, "upper"), join(dir, "work"), join(dir, "merged")];
  await Promise.all([upper, work, merged].map((path) => mkdir(path, { mode: 0o700 })));
  using base = lower.reopen(fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  using above = Descriptor.name(upper, true).reopenFolder();
  using aside = Descriptor.name(work, true).reopenFolder();
  using place = Descriptor.name(merged, true).reopenFolder();
  likeFolder(above, lower);
  // By descriptor: a path in the options could contain a colon or a comma, and may have been replaced.
  const layers = "lowerdir=/proc/self/fd/3,upperdir=/proc/self/fd/4,workdir=/proc/self/fd/5";
  const mounted = await runSystemProgram(
    "mount",
    ["-i", "-n", "-t", "overlay", "corral", "-o", `${OPTIONS},${layers}`, "/proc/self/fd/6"],
    [base.fd, above.fd, aside.fd, place.fd],
  );
  return mounted ? { merged, upper, unmount: () => detachMount(merged) } : null;
}
