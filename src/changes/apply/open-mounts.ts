import fs from "node:fs";
import PQueue from "p-queue";
import { sync } from "../../files/host/content.ts";
import { Descriptor, mountIdOf, pinned } from "../../files/host/descriptor.ts";
import { hasCode } from "../../platform/errno.ts";
import { type Change, type Changeset, type EntryFacts, factsOf } from "../model/changeset.ts";
import { type ChangeVerdict, conflict, isVerdict, refused } from "./fitness.ts";

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

/** A folder in which something is changed, held open, and the name in it. */
export interface ChangeSlot extends Disposable {
  readonly folder: Descriptor;
  readonly name: string;
}

/** The mounts of a changeset, held open: for each the directory that receives the changes, and the run's own version. */
export class OpenMounts implements Disposable {
  readonly #opened: readonly {
    readonly target: Descriptor | null;
    readonly content: Descriptor | null;
    readonly lent: boolean;
  }[];

  constructor({ mounts }: Pick<Changeset, "mounts">) {
    this.#opened = mounts.map((mount) => ({
      target: identified(mount.target, mount.targetIdentity),
      content: pinned(mount.content),
      lent: mount.lent ?? false,
    }));
  }

  /** Opens the folder of a change in the real directory. */
  target(mount: number, parts: readonly string[]): ChangeSlot | ChangeVerdict {
    const root = this.#opened[mount]?.target ?? null;
    return root === null ? refused("its directory was replaced since the run began") : open(root, parts);
  }

  /** Whose a new entry in the slot is; null: as in the run's own version. */
  owner(mount: number, { folder, name }: ChangeSlot): Pick<ChangedContent, "uid" | "gid"> | null {
    if (this.#opened[mount]?.lent !== true) return null;
    const { uid, gid } = fs.lstatSync(folder.path(name), { throwIfNoEntry: false }) ?? folder.stat();
    return { uid, gid };
  }

  /** Opens the folder of a change in the run's own version. */
  content(mount: number, parts: readonly string[]): ChangeSlot | ChangeVerdict {
    const root = this.#opened[mount]?.content ?? null;
    const slot = root === null ? CONTENT_CHANGED : open(root, parts);
    return "folder" in slot ? slot : CONTENT_CHANGED;
  }

  [Symbol.dispose](): void {
    for (const { target, content } of this.#opened) {
      target?.[Symbol.dispose]();
      content?.[Symbol.dispose]();
    }
  }
}

/** Only the content that was checked and shown is applied. */
export const CONTENT_CHANGED: ChangeVerdict = refused("its new content was changed after it had been checked");

/** What the run left under a name. The descriptor only names it: reopen a file to read it. */
export interface ChangedContent extends Disposable {
  readonly descriptor: Descriptor;
  readonly uid: number;
  readonly gid: number;
  readonly mtimeNs: bigint;
}

/** Finds what a change brings. It must still be what was checked. */
export function openContent({ mount, parts, next }: Change, mounts: OpenMounts): ChangedContent | ChangeVerdict {
  const slot = mounts.content(mount, parts);
  if (isVerdict(slot)) return slot;
  using _ = slot;
  let descriptor: Descriptor;
  try {
    descriptor = Descriptor.name(slot.folder.path(slot.name));
  } catch (error) {
    if (hasCode(error, "ENOENT")) return CONTENT_CHANGED;
    throw error;
  }
  const stats = fs.fstatSync(descriptor.fd, { bigint: true });
  if (next === null || !isAsItWas(next, factsOf(stats) ?? "other")) {
    descriptor[Symbol.dispose]();
    return CONTENT_CHANGED;
  }
  const [uid, gid] = [Number(stats.uid), Number(stats.gid)];
  return { descriptor, uid, gid, mtimeNs: stats.mtimeNs, [Symbol.dispose]: () => descriptor[Symbol.dispose]() };
}

function identified(host: string, identity: string): Descriptor | null {
  const found = pinned(host);
  if (found?.stat().isDirectory() && found.identity() === identity) return found;
  found?.[Symbol.dispose]();
  return null;
}

/** Goes down through no link and onto no other mount: the run has not seen what is mounted inside. */
function open(root: Descriptor, parts: readonly string[]): ChangeSlot | ChangeVerdict {
  const mount = mountIdOf(root);
  // At each step: nothing is looked up in another mount, whose entries would decide the verdict.
  const staysHere = (step: Descriptor): void => {
    if (mountIdOf(step) !== mount) throw Object.assign(new Error("another mount"), { code: "EXDEV" });
  };
  try {
    const folder = root.below(parts.slice(0, -1), staysHere);
    return { folder, name: parts.at(-1) ?? "", [Symbol.dispose]: () => folder[Symbol.dispose]() };
  } catch (error) {
    if (hasCode(error, "EXDEV")) return refused("another file system is mounted there");
    if (hasCode(error, "ENOENT")) return conflict("its parent directory does not exist");
    if (hasCode(error, "ENOTDIR")) return refused("a link or a file is in the place of one of its parent directories");
    throw error;
  }
}

/** The entry that has a name now; a link is not followed. `other`: a FIFO, a socket or a device. Null: none. */
export type CurrentEntry = EntryFacts | "other" | null;

export function currentEntry(folder: Descriptor, name: string): CurrentEntry {
  const stats = fs.lstatSync(folder.path(name), { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? null : (factsOf(stats) ?? "other");
}

/** True if `now` is the entry `base`, unchanged. A directory need only be the same one. */
export function isAsItWas(base: EntryFacts, now: CurrentEntry): boolean {
  if (now === null || now === "other" || now.type !== base.type || now.inode !== base.inode) return false;
  if (now.type === "directory") return true;
  return now.size === base.size && now.mtimeNs === base.mtimeNs && now.ctimeNs === base.ctimeNs;
}

/** Why a change would overwrite a change that others made since the run began; null if it would not. */
export function whyConflict({ kind, base }: Pick<Change, "kind" | "base">, now: CurrentEntry): string | null {
  if (kind === "create") return now === null ? null : "another entry of that name was created since the run began";
  if (now === null) return "it was deleted since the run began";
  return base !== null && isAsItWas(base, now) ? null : "it was changed since the run began";
}
