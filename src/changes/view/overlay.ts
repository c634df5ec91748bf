import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { Descriptor, detachMount, isRoot } from "../../files/host/descriptor.ts";
import { runSystemProgram } from "../../files/host/system-program.ts";
import { likeFolder } from "./base-tree.ts";

export interface Overlay {
  /** The layers below together with what was written. */
  readonly merged: string;
  /** Only what was written: whole files, and 0:0 devices for deletions (docs/facts.md, fact: overlay-volume). */
  readonly upper: string;
  /** False: a program still uses it. */
  unmount(): Promise<boolean>;
}

/**
 * These kernel features are off: with them, only the kernel could read some changes. `nofollow` is stricter than `off`, with which a kernel may
 * be set to follow a redirect that it finds in a layer.
 */
const OPTIONS = "nosuid,nodev,redirect_dir=nofollow,metacopy=off,index=off";
/** The first descriptor that a system program gets. */
const FIRST = 3;

/** A new writable layer: its files and the kernel's own place beside them, both empty. */
interface Above {
  readonly upper: Descriptor;
  readonly work: Descriptor;
}

/** Mounts layers over each other at `place`, the highest first. Null above: nothing can be written, and there are two at least. */
export async function mountLayers(
  place: Descriptor,
  lowers: readonly Descriptor[],
  above: Above | null,
): Promise<boolean> {
  // Only root can make a mount that the Engine also sees.
  if (!isRoot()) return false;
  const all = [...lowers, ...(above === null ? [] : [above.upper, above.work]), place];
  // By descriptor: a path in the options could contain a colon or a comma, and may have been replaced.
  const named = (index: number): string => `/proc/self/fd/${FIRST + index}`;
  const writes = above === null ? "ro" : `upperdir=${named(lowers.length)},workdir=${named(lowers.length + 1)}`;
  const layers = `lowerdir=${lowers.map((_, index) => named(index)).join(":")},${writes}`;
  // Not `volatile`: what a run leaves for later, held changes or a snapshot, is on the disk when its view is closed (fact: overlay-volatile).
  return await runSystemProgram(
    "mount",
    ["-i", "-n", "-t", "overlay", "corral", "-o", `${OPTIONS},${layers}`, named(all.length - 1)],
    all.map(({ fd }) => fd),
  );
}

/** Where the parts of one overlay are. All are made, but for `merged` where there is one already. */
export interface OverlayPlaces {
  readonly upper: string;
  readonly work: string;
  readonly merged: string;
}

export function overlayPlaces(dir: string): OverlayPlaces {
  return { upper: join(dir, "upper"), work: join(dir, "work"), merged: join(dir, "merged") };
}

/**
 * Lays a writable layer over directories that are held open, the highest first. Null if that is not possible: Corral is
 * not root, the file system does not support it, or a directory is already two overlays deep.
 */
export async function mountOverlay(
  lowers: readonly [Descriptor, ...Descriptor[]],
  { upper, work, merged }: OverlayPlaces,
): Promise<Overlay | null> {
  if (!isRoot()) return null;
  await Promise.all([upper, work, merged].map((path) => mkdir(path, { recursive: true, mode: 0o700 })));
  const folders = lowers.map((lower) => lower.reopen(fs.constants.O_RDONLY | fs.constants.O_DIRECTORY));
  using above = Descriptor.name(upper, true).reopenFolder();
  using aside = Descriptor.name(work, true).reopenFolder();
  using place = Descriptor.name(merged, true).reopenFolder();
  try {
    likeFolder(above, lowers[0]);
    const isMounted = await mountLayers(place, folders, { upper: above, work: aside });
    return isMounted ? { merged, upper, unmount: () => detachMount(merged) } : null;
  } finally {
    for (const folder of folders) folder[Symbol.dispose]();
  }
}
