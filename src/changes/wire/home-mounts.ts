import { basename, dirname } from "node:path";
import { pinned } from "../../files/host/descriptor.ts";
import { governingMount, hostBelow } from "../../sandbox/access.ts";
import { comesBack } from "../../sandbox/expand.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { covers, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ChangedMount } from "../model/changeset.ts";
import { type RawName, rawNameOf, textOf } from "../model/raw-name.ts";
import type { View } from "../view/view.ts";
import { type WireMount, WireRefused } from "./document.ts";

/** The sandbox of an item as its coordinator derives it, and below which mounts directories may be made for it. */
export interface HomeSandbox {
  readonly sandbox: Pick<Sandbox, "mounts"> & Partial<Pick<Sandbox, "policy">>;
  readonly makesBelow?: Pick<Sandbox, "mounts">;
}

/** Where this machine applies the changes of one mount. Nothing of it comes from the machine of the run. */
export interface HomeMount extends Pick<View, "mount" | "pathOf" | "closed"> {
  readonly changed: Omit<ChangedMount, "content">;
}

/** Throws `WireRefused` if the item may not change anything there: no machine that keeps to its sandbox can say so. */
export function homeMountOf({ path, changes }: WireMount, home: HomeSandbox): HomeMount {
  const { sandbox } = home;
  const mounts = sandbox.mounts.filter((mount) => comesBack(mount) && mount.path !== path && covers(path, mount.path));
  // The innermost first: a mount in another one has its own changes.
  for (const mount of mounts.toSorted((a, b) => b.path.length - a.path.length)) {
    const place = madeMount(mount, path, home);
    if (place === null || !changes.some(({ names }) => isIn(mount.path, path, names))) continue;
    const isWithin = changes.every(({ names, kind, type }) => {
      const at = place.pathOf(names);
      const isOnTheWay = at !== null && kind === "create" && type === "directory" && covers(at, mount.path);
      return isOnTheWay || isIn(mount.path, path, names);
    });
    if (isWithin) return place;
  }
  const own = sandbox.mounts.find((mount) => mount.path === path);
  if (own !== undefined && (own.mode === "ro" || comesBack(own))) return ownMount(own, changes, home);
  throw notAllowed(path);
}

function ownMount(mount: Mount, changes: WireMount["changes"], { sandbox }: HomeSandbox): HomeMount {
  using found = pinned(mount.host);
  const single = found !== null && !found.stat().isDirectory();
  const name = rawNameOf(basename(mount.host));
  // Its directory receives the change, and any other name there is not the item's.
  if (single && changes.some(({ names }) => names.length !== 1 || names[0] !== name)) throw notAllowed(mount.path);
  return {
    mount,
    closed: closedIn(mount, sandbox),
    pathOf: (names) => (single ? mount.path : virtualPath(mount.path, names)),
    changed: changedAt(mount.path, single ? dirname(mount.host) : mount.host, closedIn(mount, sandbox)),
  };
}

/** Null if the mount is not below a directory in which others may be made. */
function madeMount(mount: Mount, path: VirtualPath, { sandbox, makesBelow }: HomeSandbox): HomeMount | null {
  const around = makesBelow === undefined ? undefined : governingMount(makesBelow, mount.path);
  if (around === undefined || !covers(around.path, path) || hostBelow(around, mount.path) !== mount.host) return null;
  return {
    mount,
    closed: closedIn(mount, sandbox),
    pathOf: (names) => virtualPath(path, names),
    changed: changedAt(path, hostBelow(around, path), closedIn(mount, sandbox)),
  };
}

function notAllowed(path: VirtualPath): WireRefused {
  return new WireRefused(
    `the changes that a machine delivered are refused: ${path} has changes that the item may not make`,
  );
}

function closedIn({ path }: Mount, { mounts }: Pick<Sandbox, "mounts">): VirtualPath[] {
  return mounts.map((mount) => mount.path).filter((inner) => inner !== path && covers(path, inner));
}

function changedAt(path: VirtualPath, target: string, closed: readonly VirtualPath[]): HomeMount["changed"] {
  using found = pinned(target);
  // One that cannot be opened has an identity that none has: its changes are refused as those of a replaced directory.
  const targetIdentity = found?.stat().isDirectory() ? found.identity() : "0:0";
  // Owners on the other machine mean nothing here.
  return { path, target, targetIdentity, closed, lent: true };
}

function virtualPath(at: VirtualPath, names: readonly RawName[]): VirtualPath | null {
  const texts = names.map(textOf);
  return texts.includes(null) ? null : joinVirtual(at, texts.join("/"));
}

/** By bytes, since a name that is not UTF-8 is refused later, with its own words. */
function isIn(mount: VirtualPath, at: VirtualPath, names: readonly RawName[]): boolean {
  const path = `${at === "/" ? "" : rawNameOf(at)}/${names.join("/")}`;
  return path.startsWith(`${rawNameOf(mount)}/`);
}
