import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { Descriptor, pinned } from "../../files/host/descriptor.ts";
import { hasCode } from "../../platform/errno.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { below, covers, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { nameText, rawNameOf, rawStat } from "../model/changeset.ts";
import { likeFolder } from "./copy-tree.ts";
import type { View, ViewRequest } from "./view.ts";

/** False if a directory of `path`, which is below the mount, does not exist. True also if something else is in its place. */
export function existsBelow(around: Mount, path: VirtualPath): boolean {
  const reached = deepest(around, namesBelow(around, path));
  if (reached === null) return true;
  using _ = reached.folder;
  return reached.missing.length === 0;
}

/**
 * A view of a directory that does not exist yet, below the mount `around`: only the view has it, and it becomes a change like
 * all that is written in it. Null if it exists already, or if something else is in its place.
 */
export async function openNewFolder({ mount, mounts, dir, lentTo }: ViewRequest, around: Mount): Promise<View | null> {
  const names = namesBelow(around, mount.path);
  const reached = deepest(around, names);
  if (reached === null) return null;
  const { folder: target, missing: made } = reached;
  const held = [target];
  const close = async (): Promise<void> => {
    for (const descriptor of held.splice(0)) descriptor[Symbol.dispose]();
  };
  const opened = (path: string): Descriptor => {
    const descriptor = Descriptor.name(path, true).reopenFolder();
    held.push(descriptor);
    return descriptor;
  };
  if (made.length === 0) {
    await close();
    return null;
  }
  try {
    const path = join(dir, "copy");
    await mkdir(path, { mode: 0o700 });
    const shown = opened(path);
    likeFolder(shown, target, lentTo);
    makeFolders(shown, made);
    const there = names.slice(0, names.length - made.length);
    const at = joinVirtual(around.path, there.join("/"));
    return {
      mount,
      kind: "copy",
      host: join(path, ...made),
      target,
      targetPath: join(around.host, ...there),
      base: new Map(),
      shown,
      content: opened(path),
      contentPath: path,
      at,
      made,
      single: false,
      lent: lentTo !== undefined,
      pathOf(parts) {
        const texts = parts.map(nameText);
        return texts.includes(null) ? null : joinVirtual(at, texts.join("/"));
      },
      closed: mounts.map((one) => one.path).filter((inner) => inner !== mount.path && covers(mount.path, inner)),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Makes directories one in another, without following links; new ones are like `model`. False if something is in the way. */
export function makeFolders(root: Descriptor, names: readonly string[], model: Descriptor = root): boolean {
  const [name, ...rest] = names;
  if (name === undefined) return true;
  const stats = rawStat(root, rawNameOf(name));
  if (stats !== null && !stats.isDirectory()) return false;
  if (stats === null) fs.mkdirSync(root.path(name), 0o700);
  using inner = root.child(name, true);
  if (stats === null) likeFolder(inner, model);
  return makeFolders(inner, rest, model);
}

/** The deepest directory on the way that exists, and the names below it that do not. Null if there is no way. */
function deepest(around: Mount, names: readonly string[]): { folder: Descriptor; missing: readonly string[] } | null {
  let folder = pinned(around.host);
  for (const [index, name] of names.entries()) {
    if (folder === null) return null;
    const stats = rawStat(folder, rawNameOf(name));
    if (stats === null) return { folder, missing: names.slice(index) };
    using above: Descriptor = folder;
    folder = stats.isDirectory() ? childOf(above, name) : null;
  }
  return folder === null ? null : { folder, missing: [] };
}

/** Null if it was replaced in the meantime. */
function childOf(folder: Descriptor, name: string): Descriptor | null {
  try {
    return folder.child(name, true);
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR", "ELOOP")) return null;
    throw error;
  }
}

function namesBelow(around: Mount, path: VirtualPath): string[] {
  return (below(around.path, path) ?? "").split("/").filter((name) => name !== "");
}
