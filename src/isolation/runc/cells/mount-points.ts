import fs from "node:fs";
import { join } from "node:path";
import { directoriesAbove, type EntryKind, type InTheWay, type MountPoint } from "../../plan/mount-points.ts";

/** The image has something else where mounts belong. */
export class ImageInTheWay extends Error {
  readonly entries: readonly InTheWay[];

  constructor(entries: readonly InTheWay[]) {
    super(`the image has ${entries.map(({ path, is }) => `${is} at ${path}`).join(", ")}`);
    this.entries = entries;
  }
}

/** What the Engine replaces too in the layer that it lays over an image, unless it is a directory. */
const REPLACED: ReadonlySet<string> = new Set(
  "/dev /proc /sys /etc /etc/hosts /etc/resolv.conf /etc/hostname".split(" "),
);

/**
 * Makes the mount points of a cell, so that runc makes none and follows no link of the image: runc before 1.3.6 makes the links of
 * `/dev` wherever that leads, also on the host (CVE-2026-41579). Nothing else writes in `root` meanwhile, and each step is taken only when it is known
 * to be a directory.
 *
 * @param root the root file system, which only this cell will have, by a path on which no link is the image's.
 * @throws ImageInTheWay with all that cannot be replaced.
 */
export function makeMountPoints(root: string, points: readonly MountPoint[]): void {
  const entries: InTheWay[] = [];
  for (const { path, kind } of points) {
    const isClear = directoriesAbove(path).every((above) => madeAt(root, above, "directory", entries));
    if (isClear) madeAt(root, path, kind, entries);
  }
  const all = new Map(entries.map((entry) => [entry.path, entry]));
  if (all.size > 0) throw new ImageInTheWay([...all.values()]);
}

/** False if it is something else, which is added to `entries`. */
function madeAt(root: string, path: string, kind: MountPoint["kind"], entries: InTheWay[]): boolean {
  const place = join(root, path);
  let found = kindAt(place);
  if (found === `a ${kind}`) return true;
  if (found !== null && found !== "a directory" && REPLACED.has(path)) {
    fs.unlinkSync(place);
    found = null;
  }
  if (found !== null) {
    entries.push({ path, is: found });
    return false;
  }
  if (kind === "file") fs.writeFileSync(place, "", { flag: "wx" });
  else fs.mkdirSync(place);
  // Whatever the umask of this process.
  fs.chmodSync(place, 0o755);
  return true;
}

function kindAt(place: string): EntryKind | null {
  const stats = fs.lstatSync(place, { throwIfNoEntry: false });
  if (stats === undefined) return null;
  if (stats.isSymbolicLink()) return "a symbolic link";
  if (stats.isDirectory()) return "a directory";
  if (stats.isFile()) return "a file";
  if (stats.isFIFO()) return "a FIFO";
  return stats.isSocket() ? "a socket" : "a device";
}
