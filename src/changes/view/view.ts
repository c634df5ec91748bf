import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Descriptor, pinned } from "../../files/host/descriptor.ts";
import type { HiddenEntry } from "../../files/model/files.ts";
import { checkRead } from "../../sandbox/access.ts";
import { comesBack } from "../../sandbox/expand.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { below, covers, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { type Change, factsOf, pathBelow, type RawName, rawBytes, rawNameOf, rawStat } from "../model/changeset.ts";
import { type BaseNode, type BaseTree, copyTree, likeFolder, makeMountPoint, readBaseTree } from "./base-tree.ts";
import type { HostUser } from "./lending.ts";
import { mountOverlay, type Overlay, overlayPlaces } from "./overlay.ts";

/** How a view is made. A `copy` works everywhere and takes as much space as the directory; an overlay takes almost none. */
export type ViewKind = "overlay" | "copy";

/**
 * A staged mount as one run sees it: writes go to the staging area, and the directory itself is not changed
 * (docs/facts.md, fact: overlay-volume). Files that the sandbox does not allow to be read are not in it.
 */
export interface View {
  readonly mount: Mount;
  readonly kind: ViewKind;
  /** The host path that tools and cells use instead of the mount's own. */
  readonly host: string;
  /** The directory that changes are applied to, held open. */
  readonly target: Descriptor;
  readonly targetPath: string;
  readonly base: BaseTree;
  /** The directory with everything that the run sees. */
  readonly shown: Descriptor;
  /** The directory of the run's own versions: in an overlay only these, in a copy the same as {@link shown}. */
  readonly content: Descriptor;
  readonly contentPath: string;
  /** The virtual path of {@link target}: of the mount, or of a directory above it if the mount's own is still to be made. */
  readonly at: VirtualPath;
  /** The names that lead from there to the mount: directories that only the view has. Empty if the mount's own exists. */
  readonly made: readonly string[];
  /** The virtual path of a place below the view's directory. Null if one of the names is not UTF-8. */
  pathOf(names: readonly RawName[]): VirtualPath | null;
  /** True for a mount that is one file: the view is of the directory that holds it. */
  readonly single: boolean;
  /** The paths of other mounts inside, which do not belong to it. */
  readonly closed: readonly VirtualPath[];
  /** True if all of it belongs to the user of the cell, and not to the owner of the directory. */
  readonly lent: boolean;
  /** That user. Null if it is not lent. */
  readonly lentTo: HostUser | null;
  /** The directory of Corral's own that has only this view. */
  readonly dir: string;
  /** Frozen directories that it shows below its own, the lowest first. */
  readonly layers: readonly string[];
  /** The directories whose size is what the run wrote. */
  readonly written: readonly string[];
  /** The run's own versions of all layers together, until it is disposed of. Absent: {@link content} has them all. */
  gathered?(): Promise<GatheredContent>;
  /**
   * Removes the view. What was written stays in {@link contentPath}, if there are no {@link layers}. False: a program still
   * uses it, and may write.
   */
  close(): Promise<boolean>;
}

/** What a view showed at one moment. Its layers are never written again, and any number of views may lie above them. */
export interface FrozenView {
  readonly path: VirtualPath;
  /** The directory or the file that the view is of, and the `device:inode` of the directory. */
  readonly host: string;
  readonly identity: string;
  readonly kind: ViewKind;
  readonly lentTo: HostUser | null;
  /** Absolute, the lowest first. Those of a `copy` show all of it, those of an overlay lie above {@link host}. */
  readonly layers: readonly string[];
  /** What {@link host} had when the first of these views was made: changes are found and judged by it. */
  readonly base: BaseTree;
}

/** Of a view with layers. */
export interface GatheredContent extends Pick<View, "content" | "contentPath">, AsyncDisposable {}

export interface ViewRequest {
  readonly mount: Mount;
  /** All mounts of the sandbox. */
  readonly mounts: readonly Mount[];
  /** An existing directory of Corral's own, only for this view. */
  readonly dir: string;
  /** False: do not try an overlay. */
  readonly overlays: boolean;
  /** Whose everything in the view is. Absent: as in the directory. */
  readonly lentTo?: HostUser | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Null if the directory can no longer be opened. Rejects with `CannotStage` if it cannot be staged. */
export async function openView({ mount, mounts, dir, overlays, lentTo, signal }: ViewRequest): Promise<View | null> {
  const found = pinned(mount.host);
  if (found === null) return null;
  const single = !found.stat().isDirectory();
  const target = single ? pinned(dirname(mount.host)) : found;
  if (single) found[Symbol.dispose]();
  if (target === null) return null;
  const only = single ? rawNameOf(basename(mount.host)) : null;
  const closed = closedIn(mount, mounts);
  const pathOf = pathsOf(mount, single);
  const held = [target];
  let overlay: Overlay | null = null;
  const close = async (): Promise<boolean> => {
    for (const descriptor of held.splice(0)) descriptor[Symbol.dispose]();
    const mounted = overlay;
    overlay = null;
    return (await mounted?.unmount()) ?? true;
  };
  const opened = (path: string): Descriptor => {
    const descriptor = Descriptor.name(path, true).reopenFolder();
    held.push(descriptor);
    return descriptor;
  };
  const constrained = mount.suffixes !== undefined || mount.maxFileBytes !== undefined;
  try {
    const rules = {
      only,
      shows: (names: readonly RawName[], size: number) => {
        const path = pathOf(names);
        // A name that is not UTF-8 has no suffix that could be allowed.
        return path === null ? !constrained : checkRead({ mounts: [mount] }, path, { size }) === null;
      },
      isClosed: (names: readonly RawName[]) => {
        const path = pathOf(names);
        return path !== null && closed.some((inner) => covers(inner, path));
      },
      signal,
    };
    const asCopy = constrained || single || !overlays || lentTo !== undefined;
    const needsBase = comesBack(mount) || asCopy;
    overlay = asCopy ? null : await mountOverlay([target], overlayPlaces(dir));
    const base = needsBase || overlay === null ? await readBaseTree(target, rules) : new Map();
    const dirs =
      overlay === null
        ? await copied(target, base, dir, { mount, closed, lentTo, signal })
        : { shown: overlay.merged, content: overlay.upper };
    return {
      mount,
      kind: overlay === null ? "copy" : "overlay",
      host: single ? join(dirs.shown, basename(mount.host)) : dirs.shown,
      target,
      targetPath: single ? dirname(mount.host) : mount.host,
      base,
      shown: opened(dirs.shown),
      content: opened(dirs.content),
      contentPath: dirs.content,
      at: mount.path,
      made: [],
      pathOf,
      single,
      closed,
      ...ownedBy(lentTo ?? null),
      ...newIn(dir, dirs.content),
      close,
    };
  } catch (error) {
    await close();
    throw error;
  }
}

/** The paths of other mounts inside of one. */
export function closedIn(mount: Mount, mounts: readonly Mount[]): VirtualPath[] {
  return mounts.map(({ path }) => path).filter((path) => path !== mount.path && covers(mount.path, path));
}

export function pathsOf({ path }: Mount, single: boolean): View["pathOf"] {
  return (names) => pathBelow(path, single ? [] : names);
}

export function ownedBy(lentTo: HostUser | null): Pick<View, "lent" | "lentTo"> {
  return { lent: lentTo !== null, lentTo };
}

function newIn(dir: string, content: string): Pick<View, "dir" | "layers" | "written"> {
  return { dir, layers: [], written: [content] };
}

async function copied(
  target: Descriptor,
  base: BaseTree,
  dir: string,
  { mount, closed, lentTo, signal }: Pick<ViewRequest, "mount" | "lentTo" | "signal"> & Pick<View, "closed">,
): Promise<{ shown: string; content: string }> {
  const path = join(dir, "copy");
  await mkdir(path, { mode: 0o700 });
  using copy = Descriptor.name(path, true);
  await copyTree(target, copy, base, { owner: lentTo, signal });
  for (const inner of closed) makeMountPoint(target, copy, (below(mount.path, inner) ?? "").split("/").map(rawNameOf));
  likeFolder(copy, target, lentTo);
  return { shown: path, content: path };
}

/** The size of the file that a view leaves out at a place. Null: there is none. */
export function hiddenSizeAt({ base }: Pick<View, "base">, names: readonly RawName[]): number | null {
  const node = nodeAt(base, names);
  return node?.hidden === true && node.facts?.type === "file" ? node.facts.size : null;
}

/** What a view leaves out below a place, at most `depth` levels down. */
export function* hiddenBelow(
  { base, pathOf }: Pick<View, "base" | "pathOf">,
  names: readonly RawName[],
  depth: number,
): Generator<HiddenEntry> {
  const tree = names.length === 0 ? base : (nodeAt(base, names)?.children ?? null);
  if (tree !== null) yield* within(tree, names, depth, pathOf);
}

function* within(
  tree: BaseTree,
  names: readonly RawName[],
  depth: number,
  pathOf: (names: readonly RawName[]) => VirtualPath | null,
): Generator<HiddenEntry> {
  if (depth <= 0) return;
  for (const [name, node] of tree) {
    const at = [...names, name];
    const path = node.hidden ? pathOf(at) : null;
    if (path !== null) yield { path, size: node.facts?.type === "file" ? node.facts.size : null };
    if (node.children !== null) yield* within(node.children, at, depth - 1, pathOf);
  }
}

function nodeAt(base: BaseTree, names: readonly RawName[]): BaseNode | undefined {
  let tree: BaseTree | null = base;
  let node: BaseNode | undefined;
  for (const name of names) {
    node = tree?.get(name);
    tree = node?.children ?? null;
  }
  return node;
}

/** Adds one applied change to the base of a view that is still in use. */
export function rebase(view: Pick<View, "base" | "target" | "kind">, change: Change): void {
  const names = change.parts.map(rawNameOf);
  const name = names.at(-1);
  if (name === undefined) return;
  const folder = childrenAt(view.base as Map<RawName, BaseNode>, names.slice(0, -1));
  if (folder === null) return;
  if (change.kind === "delete") {
    folder.delete(name);
    return;
  }
  const facts = factsAt(view.target, names);
  if (facts === null) return;
  const before = folder.get(name);
  const children = facts.type === "directory" ? (before?.children ?? new Map()) : null;
  const brought = before?.brought ?? (view.kind === "overlay" && change.kind === "create");
  folder.set(name, { facts, hidden: false, children, brought });
}

function childrenAt(base: Map<RawName, BaseNode>, names: readonly RawName[]): Map<RawName, BaseNode> | null {
  let current: Map<RawName, BaseNode> | null = base;
  for (const name of names) current = (current?.get(name)?.children ?? null) as Map<RawName, BaseNode> | null;
  return current;
}

function factsAt(target: Descriptor, names: readonly RawName[]): BaseNode["facts"] {
  try {
    using folder = target.below(names.slice(0, -1).map(rawBytes));
    const stats = rawStat(folder, names.at(-1) ?? "");
    return stats === null ? null : factsOf(stats);
  } catch {
    // It was changed since: the next scan finds out.
    return null;
  }
}

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
  const close = async (): Promise<boolean> => {
    for (const descriptor of held.splice(0)) descriptor[Symbol.dispose]();
    return true;
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
      ...ownedBy(lentTo ?? null),
      ...newIn(dir, path),
      pathOf(parts) {
        return pathBelow(at, parts);
      },
      closed: closedIn(mount, mounts),
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
    folder = stats.isDirectory() ? above.childFolder(name) : null;
  }
  return folder === null ? null : { folder, missing: [] };
}

function namesBelow(around: Mount, path: VirtualPath): string[] {
  return (below(around.path, path) ?? "").split("/").filter((name) => name !== "");
}

/** A mount of a single file is seen as its directory with that name only. */
export function partsInView(view: View, path: VirtualPath): string[] {
  return path === view.mount.path ? [basename(view.mount.host)] : partsBelowView(view, path);
}

export function namesInView(view: View, path: VirtualPath): string[] {
  return (view.single ? partsInView(view, path) : partsBelowView(view, path)).map(rawNameOf);
}

/** The names that lead to it from the view's root. */
export function partsBelowView({ mount, made }: View, path: VirtualPath): string[] {
  return [...made, ...(below(mount.path, path) ?? "").split("/").filter((part) => part !== "")];
}
