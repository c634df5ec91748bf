import type { Violation } from "../../sandbox/violation.ts";
import { HOSTS_PATH, type Plan } from "./plan.ts";

/** A place in the root file system of a cell at which something is mounted. */
export interface MountPoint {
  readonly path: string;
  readonly kind: "directory" | "file";
}

/** What an image has where a cell needs a mount point, or a directory on the way to one. */
export interface InTheWay {
  readonly path: string;
  readonly is: EntryKind;
}
export type EntryKind = "a symbolic link" | "a directory" | "a file" | "a device" | "a FIFO" | "a socket";

/** Files of every cell. */
export const NAME_PATHS: readonly string[] = [HOSTS_PATH, "/etc/resolv.conf", "/etc/hostname"];
const KERNEL_PATHS = ["/proc", "/sys", "/dev"];

/** The mount points of a cell that are in its root file system and in no other mount, shallow ones first. */
export function mountPointsOf({ mounts, tmpfs }: Pick<Plan, "mounts" | "tmpfs">, others: readonly MountPoint[] = []) {
  const all = new Map<string, MountPoint>();
  const add = (path: string, kind: MountPoint["kind"]): void => void all.set(path, { path, kind });
  for (const path of KERNEL_PATHS) add(path, "directory");
  for (const path of NAME_PATHS) add(path, "file");
  for (const { path } of tmpfs) add(path, "directory");
  for (const { path, kind } of mounts) add(path, kind === "directory" ? kind : "file");
  for (const { path, kind } of others) add(path, kind);
  return [...all.values()]
    .filter(({ path }) => !directoriesAbove(path).some((above) => all.has(above)))
    .sort((a, b) => directoriesAbove(a.path).length - directoriesAbove(b.path).length);
}

/** The outermost first, without the root itself. */
export function directoriesAbove(path: string): string[] {
  const names = path.split("/").slice(1, -1);
  return names.map((_, at) => `/${names.slice(0, at + 1).join("/")}`);
}

/** A mount would be made where the entry leads, or not at all. */
export function refusalOfEntries({ image }: Pick<Plan, "image">, entries: readonly InTheWay[]): Violation {
  const texts = entries.map(({ path, is }) => `it has ${is} at ${path}`);
  const reason = `${texts.join(" and ")}, where the cell needs ${NEEDED(entries)} of its own`;
  return { code: "IMAGE_REFUSED", image: image.name, reason };
}

const NEEDED = (entries: readonly InTheWay[]): string =>
  entries.some(({ is }) => is !== "a directory") ? "a directory or a file" : "a file";
