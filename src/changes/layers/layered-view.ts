import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { mkdir, rename } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Descriptor, detachMount, isRoot, pinned } from "../../files/host/descriptor.ts";
import { removeTree } from "../../files/host/system-program.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { covers, holds, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { type RawName, rawNameOf, rawStat } from "../model/changeset.ts";
import { type Draft, scanView } from "../scan/scan.ts";
import { type BaseNode, type BaseTree, CannotStage, copyTree, likeFolder, readBaseTree } from "../view/base-tree.ts";
import { mountLayers, mountOverlay } from "../view/overlay.ts";
import {
  closedIn,
  type FrozenView,
  type GatheredContent,
  makeFolders,
  ownedBy,
  pathsOf,
  type View,
  type ViewRequest,
} from "../view/view.ts";
import { ROOT_FOLDERS } from "./root-trees.ts";

/** The place of a cell's whole root file system among the views: no mount of a sandbox can be there. */
export const ROOT_VIEW = "/.corral/root" as VirtualPath;

/** The most frozen directories over each other: the kernel takes 500, and one page of options. */
const MAX_LAYERS = 100;

/** `view` takes the place of the one that was frozen, also if it could not be: `why` says so then. */
export type Freezing =
  | { readonly view: View; readonly frozen: FrozenView }
  | { readonly view: View; readonly frozen: null; readonly why: string };

/**
 * Freezes what a view shows. What was written so far is moved to `into`, a directory to make, and nothing is copied; if no overlay can be
 * mounted, a copy is made there. Nothing may write to the view meanwhile. Rejects with `CannotStage`: then it is as it was.
 */
export async function freezeView(view: View, into: string, overlays: boolean): Promise<Freezing> {
  const isPlain = view.kind === "copy" && view.layers.length === 0;
  if (isPlain && !(overlays && isRoot())) return { view, frozen: await copiedInto(view, into) };
  const [content = "", ...own] = view.written;
  if (!isPlain && fs.readdirSync(content).length === 0) return { view, frozen: frozenAs(view) };
  if (view.layers.length >= MAX_LAYERS)
    throw new CannotStage(
      `${MAX_LAYERS} snapshots lie over each other; end the session, so that its changes are applied`,
    );
  using target = view.target.again();
  const again: Layering = { ...view, own, target };
  const isWhole = await view.close();
  if (isWhole) {
    await rename(content, into);
    const next = await openLayers({ ...again, layers: [...view.layers, into], own: [into, ...own] });
    if (next !== null) return { view: next, frozen: frozenAs(next) };
    await rename(into, content);
  }
  const before = isPlain ? plainCopy(again, content) : await openLayers(again, content);
  if (before === null) throw new Error(`the view of ${view.mount.path} cannot be mounted again`);
  // What still writes would write to the frozen layer.
  return { view: before, frozen: null, why: isWhole ? "no layer can be laid over it" : "a program still uses it" };
}

/** The view with what was frozen, at the same place, in place of what was written since. A `why`: it could not be, and shows what it showed. */
export async function restoreView(
  view: View,
  frozen: FrozenView,
  request: Omit<ViewRequest, "dir" | "mount">,
): Promise<{ readonly view: View; readonly why: string | null }> {
  const isPlain = view.kind === "copy" && view.layers.length === 0;
  const [content = "", ...own] = view.written;
  using target = view.target.again();
  const again: Layering = { ...view, own, target };
  const aside = `${content}-before`;
  let why: string | null = (await view.close()) ? null : "a program still uses it";
  if (why === null) {
    await rename(content, aside);
    const { mount, dir } = view;
    const next = await openFrozen(frozen, { ...request, mount, dir }, own).catch((error: unknown) => {
      if (error instanceof CannotStage) return error.message;
      throw error;
    });
    if (typeof next !== "string") {
      await removeTree(aside);
      return { view: next, why };
    }
    why = next;
    await removeTree(content);
    await rename(aside, content);
  }
  const before = isPlain ? plainCopy(again, content) : await openLayers(again, content);
  if (before === null) throw new Error(`the view of ${view.mount.path} cannot be mounted again`);
  return { view: before, why };
}

/** As it would be if it were frozen without what was written since the last time. */
export function frozenAs({ mount, target, kind, lentTo, layers, base }: View): FrozenView {
  return { path: mount.path, host: mount.host, identity: target.identity(), kind, lentTo, layers, base };
}

/** Links are not followed, and devices and the like left out. */
async function copiedInto(view: View, into: string): Promise<FrozenView> {
  await mkdir(into, { mode: 0o700 });
  using copy = Descriptor.name(into, true);
  const tree = await copyOf(view.shown, copy, undefined);
  likeFolder(copy, view.shown);
  return { ...frozenAs(view), layers: [into], base: withIdentities(view.base, tree) };
}

async function copyOf(from: Descriptor, to: Descriptor, signal: AbortSignal | undefined): Promise<BaseTree> {
  const tree = await readBaseTree(from, { only: null, shows: () => true, isClosed: () => false, signal });
  await copyTree(from, to, tree, { signal });
  return tree;
}

/** A base by which the entries of a further copy are known as unchanged that were so in the first. `copy`: read from that, and copied. */
function withIdentities(base: BaseTree, copy: BaseTree): BaseTree {
  return new Map(
    [...base].map(([name, node]): [string, BaseNode] => {
      const own = copy.get(name);
      const children = node.children === null ? null : withIdentities(node.children, own?.children ?? new Map());
      const isSame = own?.facts?.inode === node.copied?.inode && own?.facts?.ctimeNs === node.copied?.ctimeNs;
      const { copied: _, ...rest } = node;
      return [name, { ...rest, children, ...(isSame && own?.copied !== undefined ? { copied: own.copied } : {}) }];
    }),
  );
}

/** Above which layers a view is opened. */
interface Layering
  extends Pick<View, "mount" | "kind" | "base" | "single" | "lentTo" | "target" | "targetPath" | "dir" | "closed"> {
  readonly layers: readonly string[];
  /** Those that this run wrote. */
  readonly own: readonly string[];
}

/** A view with all that was frozen. A text: why there is none. Rejects with `CannotStage` too. */
export async function openFrozen(
  frozen: FrozenView,
  { mount, mounts, dir, overlays, lentTo, signal }: ViewRequest,
  own: readonly string[] = [],
): Promise<View | string> {
  if (frozen.host !== mount.host) return "the snapshot is of another directory";
  if (frozen.lentTo?.uid !== lentTo?.uid || frozen.lentTo?.gid !== lentTo?.gid)
    return "its files belonged to another user when the snapshot was made";
  using found = pinned(mount.host);
  const single = found?.stat().isDirectory() === false;
  const targetPath = single ? dirname(mount.host) : mount.host;
  using target = pinned(targetPath);
  if (found === null || target === null) return "it cannot be opened";
  // The tree of an image is made again as it was.
  if (frozen.path !== ROOT_VIEW && frozen.identity !== target.identity())
    return "another directory has its place since the snapshot";
  const { kind, base, layers } = frozen;
  const closed = closedIn(mount, mounts);
  const of = { mount, kind, base, layers, single, target, targetPath, dir, closed, own, lentTo: frozen.lentTo };
  const layered = overlays && isRoot() ? await openLayers(of) : null;
  if (layered !== null) return layered;
  const [layer] = layers;
  if (kind === "overlay" || layers.length !== 1 || layer === undefined)
    return "its snapshot has layers, which cannot be laid over each other here";
  const place = join(dir, "copy");
  await mkdir(place, { mode: 0o700 });
  using from = Descriptor.name(layer, true);
  using copy = Descriptor.name(place, true);
  const tree = await copyOf(from, copy, signal);
  likeFolder(copy, from);
  return plainCopy({ ...of, layers: [], base: withIdentities(base, tree) }, place);
}

/** The view has a descriptor of the target of its own. */
function plainCopy(of: Layering, place: string): View {
  const held = new HeldDescriptors();
  return viewOf(of, {
    ...{ place, layers: [], written: [place], contentPath: place },
    ...{ target: held.add(of.target.again()), shown: held.opened(place), content: held.opened(place) },
    close: async () => {
      held.closed();
      return true;
    },
  });
}

/** `upper`: with what was written there; absent: a new one. Null if it cannot be mounted. */
async function openLayers(of: Layering, upper?: string): Promise<View | null> {
  const { kind, layers, dir } = of;
  const place = join(dir, kind === "overlay" ? "merged" : "copy");
  const mark = randomBytes(4).toString("hex");
  const places = { upper: upper ?? join(dir, `upper-${mark}`), work: join(dir, `work-${mark}`), merged: place };
  using below = new HeldDescriptors();
  const frozen = layers.toReversed().map((path) => below.opened(path));
  const [highest, ...others] = kind === "overlay" ? [...frozen, of.target] : frozen;
  const overlay = highest === undefined ? null : await mountOverlay([highest, ...others], places);
  if (overlay === null) return null;
  const held = new HeldDescriptors();
  const parts = {
    ...{ place, layers, written: [places.upper, ...of.own] },
    ...{ target: held.add(of.target.again()), shown: held.opened(place) },
    close: async () => !held.closed() || (await overlay.unmount()),
  };
  // A copy has versions of all its entries.
  if (kind === "copy") return viewOf(of, { ...parts, content: held.opened(place), contentPath: place });
  const own = { ...parts, content: held.opened(places.upper), contentPath: places.upper };
  if (layers.length === 0) return viewOf(of, own);
  const gathered = () => gatheredIn(join(dir, `written-${mark}`), [...layers, places.upper]);
  return viewOf(of, { ...own, gathered });
}

class HeldDescriptors implements Disposable {
  readonly #held: Descriptor[] = [];

  add(descriptor: Descriptor): Descriptor {
    this.#held.push(descriptor);
    return descriptor;
  }

  opened(path: string): Descriptor {
    return this.add(Descriptor.name(path, true).reopenFolder());
  }

  /** False: they were closed before. */
  closed(): boolean {
    const all = this.#held.splice(0);
    for (const descriptor of all) descriptor[Symbol.dispose]();
    return all.length > 0;
  }

  [Symbol.dispose](): void {
    this.closed();
  }
}

type ViewParts = Pick<View, "target" | "shown" | "content" | "contentPath" | "layers" | "written" | "close"> &
  Pick<Partial<View>, "gathered"> & { readonly place: string };

function viewOf(of: Layering, { place, ...parts }: ViewParts): View {
  const { mount, kind, base, single, lentTo, dir, closed, targetPath } = of;
  return {
    ...{ mount, kind, base, single, dir, closed, targetPath, at: mount.path, made: [] },
    ...ownedBy(lentTo),
    host: single ? join(place, basename(mount.host)) : place,
    pathOf: pathsOf(mount, single),
    ...parts,
  };
}

/**
 * What a view shows and what was frozen did not, and the other way round. `dir`: of Corral's own, for a mount. The session may write
 * meanwhile: what it changes then is in it or not.
 */
export async function differencesSince(
  view: View,
  { kind, layers }: FrozenView,
  dir: string,
  signal: AbortSignal | undefined,
): Promise<Draft[]> {
  const path = join(dir, `then-${randomBytes(4).toString("hex")}`);
  await mkdir(path, { mode: 0o700 });
  using held = new HeldDescriptors();
  const frozen = layers.toReversed().map((layer) => held.opened(layer));
  const lowers = kind === "overlay" ? [...frozen, view.target] : frozen;
  const [only = view.target, ...others] = lowers;
  const isMounted = others.length > 0;
  if (isMounted && !(await mountLayers(held.opened(path), lowers, null)))
    throw new CannotStage("its layers cannot be laid over each other here");
  try {
    const then = isMounted ? held.opened(path) : only;
    const { pathOf, closed, mount, single, shown } = view;
    const isClosed = (names: readonly RawName[]): boolean => {
      const at = closed.length === 0 ? null : pathOf(names);
      return at !== null && closed.some((inner) => covers(inner, at));
    };
    const name = single ? rawNameOf(basename(mount.host)) : null;
    const read = await readBaseTree(then, { only: name, shows: () => true, isClosed, signal });
    const found = await scanView({ ...view, base: asCopied(read), content: shown, target: then }, { signal });
    // What is no file, folder or link was not read, and is in no changeset: whether it is new is not known.
    return found.filter(({ kind, type }) => kind !== "create" || type !== "other");
  } finally {
    held.closed();
    if (isMounted) await detachMount(path);
  }
}

/** What has the same identity is the same: layers that both have are one directory. */
function asCopied(tree: BaseTree): BaseTree {
  return new Map(
    [...tree].map(([name, node]): [string, BaseNode] => {
      const children = node.children === null ? null : asCopied(node.children);
      const { facts } = node;
      const copied = facts === null ? {} : { copied: { inode: facts.inode, ctimeNs: facts.ctimeNs } };
      return [name, { ...node, children, ...copied }];
    }),
  );
}

/** All that was written in these layers, the lowest first, without the directory below. */
async function gatheredIn(path: string, layers: readonly string[]): Promise<GatheredContent> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  using folders = new HeldDescriptors();
  const frozen = layers.toReversed().map((layer) => folders.opened(layer));
  if (!(await mountLayers(folders.opened(path), frozen, null))) throw new Error("layers cannot be mounted again");
  const content = Descriptor.name(path, true).reopenFolder();
  return {
    content,
    contentPath: path,
    async [Symbol.asyncDispose]() {
      content[Symbol.dispose]();
      await detachMount(path);
    },
  };
}

/** A directory of a writable root, with its place in a cell. */
export interface RootFolder {
  readonly path: string;
  readonly host: string;
}

export const NO_OVERLAYS =
  "what it writes has to be in an overlay of Corral's, within the disk limit, and none can be mounted here: Corral has to be root, on this machine itself";

/** `tree`: the directory of an image. `from`: what the view shows at first, above it. A text: why there is no view. */
export async function openRootView(tree: string, from: FrozenView | undefined, dir: string): Promise<View | string> {
  if (from !== undefined && from.host !== tree) return "the snapshot was taken of another image, or with another user";
  using folder = Descriptor.name(tree, true);
  const frozen = { ...(from ?? nothingOver(tree)), identity: folder.identity() };
  const mount: Mount = { name: "root", path: ROOT_VIEW, host: tree, mode: "rw", discard: true };
  const opened = await openFrozen(frozen, { mount, mounts: [], dir, overlays: true });
  return typeof opened === "string" && from === undefined ? NO_OVERLAYS : opened;
}

/** The root as its image has it. */
export function rootOfImage({ mount: { host }, target }: View): FrozenView {
  return { ...nothingOver(host), identity: target.identity() };
}

function nothingOver(host: string): Omit<FrozenView, "identity"> {
  return { path: ROOT_VIEW, host, kind: "overlay", lentTo: null, layers: [], base: new Map() };
}

/** What a cell shows of the root, but for what is a mount of its sandbox. `points`: directories on which something is mounted; the worker may have made anything in their places. */
export function rootFoldersOf(
  { shown, host }: View,
  { mounts, rooted }: Sandbox,
  points: readonly string[],
): readonly RootFolder[] | string {
  for (const point of points.filter((each) => ROOT_FOLDERS.includes(each.split("/")[1] ?? "")))
    if (!makeFolders(shown, point.split("/").slice(1))) return `something else is in the place of ${point}`;
  const isFree = (path: string): boolean => rooted || !mounts.some((mount) => holds(path, mount.path));
  const folders = ROOT_FOLDERS.filter((name) => rawStat(shown, rawNameOf(name))?.isDirectory());
  return folders.map((name) => ({ path: `/${name}`, host: join(host, name) })).filter(({ path }) => isFree(path));
}
