import fs from "node:fs";
import { dirname } from "node:path";
import { type Descriptor, isRoot, pinned } from "../../files/host/descriptor.ts";
import { codeOf } from "../../platform/errno.ts";
import { deliveryOf } from "../../sandbox/expand.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { CELL_USER_ID } from "../../sandbox/policy.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { type RawName, rawChild, rawNamesIn, rawStat } from "../model/changeset.ts";

/** A user of the host, and its group. */
export interface HostUser {
  readonly uid: number;
  readonly gid: number;
}

/** Of cells that no writable directory gives another one. */
export const CELL_USER: HostUser = { uid: CELL_USER_ID, gid: CELL_USER_ID };

/** Root's own files are closed to workers that do not run as root. */
export function isLending({ policy }: Pick<Sandbox, "policy">): boolean {
  return isRoot() && !policy.hardening.rootUser;
}

/** How many entries of one directory Corral examines. A larger directory is shown unchanged, even if the worker cannot read all of it. */
const MAX_LOOKED_AT = 20_000;
const MAX_DEPTH = 128;

/**
 * The mounts that are shown as copies which belong to the user of the cell, and that user. Root may read every file and write
 * every directory, and the validator says so; but a policy does not run workers as root, so root's own files would be closed
 * to them. Nothing is lent if Corral is not root, or if the policy allows root.
 *
 * `isRefused`: whether a host path may be no mount at all; it is not looked into.
 */
export function lendings(
  { mounts, policy }: Pick<Sandbox, "mounts" | "policy">,
  isRefused: (host: string) => boolean,
): ReadonlyMap<VirtualPath, HostUser> {
  if (!isLending({ policy })) return new Map();
  const owned = mounts.flatMap((mount) => {
    const owner = isRefused(mount.host) ? null : ownerOf(mount.host);
    return owner === null ? [] : [{ mount, owner }];
  });
  const borrower = borrowerOf(owned);
  const lent = owned.filter(({ mount, owner }) =>
    mount.mode === "rw"
      ? owner.uid === 0 && deliveryOf(mount) === "view"
      : owner.uid !== borrower.uid && hidesFrom(borrower, mount.host),
  );
  return new Map(lent.map(({ mount }) => [mount.path, borrower]));
}

/** The files among `hosts` that are shown as copies for the same reason, and whose these are. `mounts`: with their views. */
export function lentFiles(
  hosts: readonly string[],
  { mounts, policy }: Pick<Sandbox, "mounts" | "policy">,
  isRefused: (host: string) => boolean,
): { readonly borrower: HostUser; readonly lent: readonly string[] } {
  const files = hosts.filter((host) => !isRefused(host)).map((host) => ({ host, owner: ownerOf(host) }));
  const owned = [...mounts.map(({ host, mode }) => ({ mode, owner: ownerOf(host) })), ...files].flatMap((one) =>
    one.owner === null ? [] : [{ mount: { mode: "mode" in one ? one.mode : "ro" }, owner: one.owner }],
  );
  const borrower = borrowerOf(owned);
  if (!isLending({ policy })) return { borrower, lent: [] };
  return { borrower, lent: files.flatMap(({ host }) => (hidesFrom(borrower, host) ? [host] : [])) };
}

/** The owner of what is not root's: of the writable directories, or else of all. If there is none, or more than one, the user of cells. */
function borrowerOf(owned: readonly { readonly mount: Pick<Mount, "mode">; readonly owner: HostUser }[]): HostUser {
  const unprivileged = owned.filter(({ owner }) => owner.uid !== 0);
  const writable = unprivileged.filter(({ mount }) => mount.mode === "rw");
  const owners = new Map(
    (writable.length > 0 ? writable : unprivileged).map(({ owner: { uid, gid } }) => {
      const own = gid === 0 ? CELL_USER_ID : gid;
      return [`${uid}:${own}`, { uid, gid: own }] as const;
    }),
  );
  const [only] = owners.values();
  return only !== undefined && owners.size === 1 ? only : CELL_USER;
}

/** Of the directory that is still to be made: of the nearest one around it. */
function ownerOf(host: string): HostUser | null {
  using found = pinned(host);
  if (found === null) return host === "/" || fs.existsSync(host) ? null : ownerOf(dirname(host));
  const { uid, gid } = found.stat();
  return { uid, gid };
}

/** True if the user cannot read everything there. */
function hidesFrom(user: HostUser, host: string): boolean {
  using found = pinned(host);
  if (found === null) return false;
  const stats = found.stat();
  if (!isOpen(user, stats)) return true;
  return stats.isDirectory() && new Look(user).hides(found, 0);
}

class Look {
  readonly #user: HostUser;
  #looked = 0;

  constructor(user: HostUser) {
    this.#user = user;
  }

  hides(folder: Descriptor, depth: number): boolean {
    if (depth > MAX_DEPTH) return false;
    for (const name of rawNamesIn(folder)) {
      this.#looked += 1;
      if (this.#looked > MAX_LOOKED_AT) return false;
      const stats = rawStat(folder, name);
      if (stats === null || !(stats.isFile() || stats.isDirectory())) continue;
      if (!isOpen(this.#user, { uid: Number(stats.uid), gid: Number(stats.gid), mode: Number(stats.mode) }))
        return true;
      if (stats.isDirectory() && this.#hidesBelow(folder, name, depth)) return true;
    }
    return false;
  }

  #hidesBelow(folder: Descriptor, name: RawName, depth: number): boolean {
    try {
      using inner = rawChild(folder, name, true);
      return this.hides(inner, depth + 1);
    } catch (error) {
      // It disappeared meanwhile.
      if (codeOf(error) !== undefined) return false;
      throw error;
    }
  }
}

/** By the permission bits: to read a file, or to list a directory and enter it. */
function isOpen(user: HostUser, { uid, gid, mode }: Pick<fs.Stats, "uid" | "gid" | "mode">): boolean {
  const needed = (mode & fs.constants.S_IFMT) === fs.constants.S_IFDIR ? 0o5 : 0o4;
  const shift = uid === user.uid ? 6 : gid === user.gid ? 3 : 0;
  return ((mode >> shift) & needed) === needed;
}
