import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import { posix } from "node:path";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";

/** A name as the kernel has it: each character is one byte. A worker may choose names that are not UTF-8. */
export type RawName = string;

export function rawNamesIn(folder: Descriptor): RawName[] {
  return fs.readdirSync(folder.path(), { encoding: "latin1" });
}

export function rawBytes(name: RawName): Buffer {
  return Buffer.from(name, "latin1");
}

/** The path of `name` in an opened folder, for the calls of `node:fs`. */
export function rawPath(folder: Descriptor, name: RawName): Buffer {
  return folder.path(rawBytes(name)) as unknown as Buffer;
}

export function rawChild(folder: Descriptor, name: RawName, directory = false): Descriptor {
  return folder.child(rawBytes(name), directory);
}

const ASCII = /^\p{ASCII}*$/u;

/** The name as text; null if it is not UTF-8. */
export function nameText(name: RawName): string | null {
  // A worker can make a hundred thousand long names.
  if (ASCII.test(name)) return name;
  const bytes = rawBytes(name);
  return isUtf8(bytes) ? bytes.toString() : null;
}

/** The path of an entry below a mount; null if a name on the way is not UTF-8. */
export function pathBelow(mount: VirtualPath, names: readonly RawName[]): VirtualPath | null {
  const texts = names.map(nameText);
  return texts.includes(null) ? null : joinVirtual(mount, texts.join("/"));
}

export function rawNameOf(text: string): RawName {
  return Buffer.from(text, "utf8").toString("latin1");
}

/** The entry of that name; a link is not followed. Null if there is none. */
export function rawStat(folder: Descriptor, name: RawName): fs.BigIntStats | null {
  return fs.lstatSync(rawPath(folder, name), { bigint: true, throwIfNoEntry: false }) ?? null;
}

/** Null for anything but a file, a directory or a link. */
export function factsOf(stats: fs.BigIntStats): EntryFacts | null {
  const type = stats.isFile() ? "file" : stats.isDirectory() ? "directory" : stats.isSymbolicLink() ? "link" : null;
  if (type === null) return null;
  return {
    type,
    inode: String(stats.ino),
    size: Number(stats.size),
    mode: Number(stats.mode) & 0o7777,
    mtimeNs: String(stats.mtimeNs),
    ctimeNs: String(stats.ctimeNs),
  };
}

/** What an entry was when it was read. Numbers that need more than 53 bits are decimal text. */
export interface EntryFacts {
  readonly type: "file" | "directory" | "link";
  readonly inode: string;
  /** In bytes; of a link, the length of its target. */
  readonly size: number;
  /** Permission bits, `0o7777` at most. */
  readonly mode: number;
  readonly mtimeNs: string;
  /** The kernel sets it at every change of content, mode, owner or name. A worker cannot choose it. */
  readonly ctimeNs: string;
}

/** One entry that a run changed in one of its views. */
export interface Change {
  /** Its index in the changeset, from 0, which is the order of applying. */
  readonly index: number;
  /** Its mount, as an index of {@link Changeset.mounts}. */
  readonly mount: number;
  /** Below the mount; never empty, no component is `.` or `..`. */
  readonly parts: readonly string[];
  /** The path as the run saw it. */
  readonly path: VirtualPath;
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link";
  /** The entry when the view was made; null if there was none. A different entry there now is a conflict. */
  readonly base: EntryFacts | null;
  /** The entry that the run left; null for a deletion. Its content is at the same parts below the mount's `content`. */
  readonly next: EntryFacts | null;
  /** The target of a link. */
  readonly linkText?: string;
  /** Why it must not be applied, even if it is approved. Null if it may. */
  readonly refusal: string | null;
}

/** A directory that receives changes. */
export interface ChangedMount {
  readonly path: VirtualPath;
  /** The host directory that receives the changes, and its `device:inode` when the view was made. */
  readonly target: string;
  readonly targetIdentity: string;
  /** The directory of the run's own versions: absolute, in Corral's state directory, and no longer written. */
  readonly content: string;
  /** Paths of other mounts inside, and of the project's own files: nothing there may be changed. */
  readonly closed: readonly VirtualPath[];
  /**
   * The run's own versions belong to the user of its cell. What is applied gets the owner of what it replaces, or of the directory
   * that it comes into.
   */
  readonly lent?: true;
}

/**
 * Everything that one run changed in its staged mounts, in the order of applying: deletions that make room for another
 * type of entry, directories from the top, files and links, then all other deletions from the bottom.
 */
export interface Changeset {
  readonly version: 1;
  /** The run's id. A session that commits more than once counts: `RUN`, `RUN.2`. */
  readonly id: string;
  readonly run: string;
  readonly root: string;
  readonly worker: string;
  /** The project's directory. */
  readonly project: string;
  /** ISO 8601, UTC. */
  readonly createdAt: string;
  readonly mounts: readonly ChangedMount[];
  readonly changes: readonly Change[];
  /** The run's policy lets a general yes cover what programs of the host execute. Absent: it is decided on apart. */
  readonly hostExecuted?: "allow";
  /** The item of a fleet whose run this was: the fleet's journal has to learn the end of it. Absent: no item. */
  readonly fleet?: ChangedItem;
}

export interface ChangedItem {
  readonly id: string;
  /** The item's index in its fleet. */
  readonly item: number;
  /** Its name among the items. Absent: written by a version of Corral before this one. */
  readonly key?: string;
  /** The database that has the fleet. Absent: the journal of this machine. */
  readonly store?: string;
}

/** The outcome of one change. `held`: it waits, since its run failed or was not approved in time. */
export type ChangeOutcome = "applied" | "refused" | "conflict" | "denied" | "held";

/** The changeset with only some of its changes. */
export function only(changeset: Changeset, indexes: ReadonlySet<number>): Changeset {
  return { ...changeset, changes: changeset.changes.filter(({ index }) => indexes.has(index)) };
}

/** A place of a changeset as one text, to be compared with others. */
export function placeKey(mount: number, parts: readonly string[]): string {
  return `${mount}:${parts.join("/")}`;
}

/** The keys of a change's place and of all directories above it, from the innermost. */
export function placesAbove({ mount, parts }: Pick<Change, "mount" | "parts">): [string, ...string[]] {
  return [placeKey(mount, parts), ...parts.slice(1).map((_, index) => placeKey(mount, parts.slice(0, -1 - index)))];
}

/**
 * Why a link must not be applied; null if it stays inside of its directory, wherever that is. `..` is only allowed at the
 * beginning: after a name it starts from where that name leads, which may be another link. `depth`: the number of folders
 * between the directory and the link.
 */
export function linkTextFault(linkText: string, depth: number): string | null {
  if (linkText === "" || linkText.includes("\0")) return "it is a link with an empty or invalid target";
  if (posix.isAbsolute(linkText)) return "it is an absolute link";
  const steps = linkText.split("/").filter((step) => step !== "" && step !== ".");
  const down = steps.findIndex((step) => step !== "..");
  const ups = down < 0 ? steps.length : down;
  if (ups > depth) return "it is a link that leaves its directory";
  return steps.includes("..", ups) ? "it is a link with `..` after a name" : null;
}
