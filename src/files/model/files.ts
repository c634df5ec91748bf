import { governingMount } from "../../sandbox/access.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { below, covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { type FileOperation, IS_DIRECTORY } from "./refusals.ts";

/** What the views of a sandbox leave out, although it is in their directories. */
export interface Hidden {
  /** The size in bytes of a file that is left out. Null: none is at that path. */
  sizeAt(path: VirtualPath): number | null;
  /** What is left out below a directory, at most `depth` levels down. */
  below(path: VirtualPath, depth: number): Iterable<HiddenEntry>;
}

export interface HiddenEntry {
  readonly path: VirtualPath;
  /** Null: it is not a file, or cannot be read. */
  readonly size: number | null;
}

export const NOTHING_HIDDEN: Hidden = { sizeAt: () => null, below: () => [] };

/** The number of entries that are not shown, by the reason. Their names are never shown. */
export interface NotShown {
  readonly otherSuffix: number;
  readonly tooLarge: number;
  /** Devices, FIFOs, sockets, and what Corral itself may not read. */
  readonly unreadable: number;
}

export const ALL_SHOWN: NotShown = { otherSuffix: 0, tooLarge: 0, unreadable: 0 };

export function sumOf(a: NotShown, b: NotShown): NotShown {
  return {
    otherSuffix: a.otherSuffix + b.otherSuffix,
    tooLarge: a.tooLarge + b.tooLarge,
    unreadable: a.unreadable + b.unreadable,
  };
}

/** One sentence; empty if everything is shown. */
export function notShownText({ otherSuffix, tooLarge, unreadable }: NotShown): string {
  const parts = [
    [otherSuffix, "with another suffix (SUFFIX_NOT_ALLOWED)"],
    [tooLarge, "too large (FILE_TOO_LARGE)"],
    [unreadable, "not readable"],
  ] as const;
  const said = parts.filter(([count]) => count > 0).map(([count, why]) => `${count} ${why}`);
  return said.length === 0 ? "" : `Entries that are not shown: ${said.join(", ")}.`;
}

/** The largest tree that one operation deletes, copies or moves. */
export const MAX_TREE_ENTRIES = 100_000;
/** The deepest tree, counted from where an operation begins. */
export const MAX_TREE_DEPTH = 64;
/** The largest file that can be edited, since it is held in memory. */
export const MAX_EDIT_BYTES = 10 * 1024 ** 2;
/** The largest file that is read as a whole for a program. */
export const MAX_WHOLE_BYTES = 64 * 1024 ** 2;
/** The most that files in memory hold together. */
export const MAX_MEMORY_BYTES = 256 * 1024 ** 2;

/**
 * File operations on places of a virtual namespace. A refusal is a thrown `SandboxError`, whose text holds virtual paths
 * only. Anything else that is thrown is a bug, or the reason of an aborted signal.
 *
 * Reading, copying from, listing and `stat` follow symbolic links whose text is relative and that stay inside of the mount.
 * Nothing is ever written through a link, and deleting a link removes the link itself.
 */
export interface Files {
  read(place: Place, options?: ReadOptions & Guard): Promise<ReadResult>;
  /** The whole content as it is. Refused if it is larger than `maxBytes`. */
  bytes(place: Place, options: WholeOptions): Promise<Buffer>;
  /** Replaces the whole file at once: a reader sees the old or the new content. Creates parent folders. */
  write(place: Place, content: string | Uint8Array, options?: WriteOptions): Promise<Written>;
  append(place: Place, content: string | Uint8Array, options?: Guard & Expecting): Promise<Written>;
  edit(place: Place, edits: readonly Edit[], options?: Guard & Expecting): Promise<Edited>;
  delete(place: Place, options?: DeleteOptions): Promise<Deleted>;
  move(from: Place, to: Place, options?: TransferOptions): Promise<Transferred>;
  copy(from: Place, to: Place, options?: TransferOptions): Promise<Transferred>;
  /** Creates the folder and its parents. It is no error if the folder exists. */
  mkdir(place: Place): Promise<{ readonly created: boolean }>;
  /** True if the name exists, even if it is a broken link. */
  exists(place: Place): Promise<boolean>;
  stat(place: Place): Promise<FileInfo>;
  list(place: Place, options?: ListOptions): Promise<Listing>;
  /** What an operation would find at a place. It changes nothing. */
  look(place: Place, options: LookOptions): Promise<Looked>;
  /** The most bytes that one operation may write. Absent: no limit. */
  readonly maxWriteBytes?: number;
  /** The place itself, after links. The last components of its path need not exist. */
  resolve(place: Place): Promise<VirtualPath>;
  [Symbol.dispose](): void;
}

/**
 * Called for each file after it was opened by descriptor and before its content is read or changed. Throws to refuse.
 * `path` is the file's real place, after links. `size` is in bytes: for a write, the size afterwards.
 */
export type Check = (path: VirtualPath, size: number) => void;

export interface Checks {
  readonly read?: Check;
  readonly write?: Check;
}

export interface Guard {
  readonly checks?: Checks | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface WholeOptions extends Guard {
  readonly maxBytes: number;
}

export interface ReadOptions {
  /** The first line to return, from 1. Absent: 1. */
  readonly offset?: number | undefined;
  /** The character in that line to start at, from 1, to page through a line longer than `maxChars`. Absent: 1. */
  readonly column?: number | undefined;
  /** The most lines to return. Absent: as many as `maxChars` allows. */
  readonly limit?: number | undefined;
  /** The most characters (UTF-16 units) to return; at most `MAX_CHARS`. Absent: `DEFAULT_CHARS`. */
  readonly maxChars?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export type ReadResult = TextResult | ImageResult;

export interface TextResult {
  readonly type: "text";
  /** Exactly as in the file: a byte order mark and CRLF are kept. */
  readonly content: string;
  /** The size of the whole file. */
  readonly bytes: number;
  /** Null if the file is too large to count its lines. */
  readonly totalLines: number | null;
  readonly outputLines: number;
  /** True if the file continues after `content`. */
  readonly truncated: boolean;
  readonly truncatedBy: "lines" | "chars" | null;
  /** How to continue reading, and anything else the reader should know. */
  readonly hint: string | null;
}

export interface ImageResult {
  readonly type: "image";
  readonly content: Buffer;
  readonly bytes: number;
  /** Detected from the content, e.g. `image/png`. */
  readonly mimeType: string;
}

/** One exact replacement. `old` must occur once in the file, unless `all`. */
export interface Edit {
  readonly old: string;
  readonly new: string;
  readonly all?: boolean | undefined;
}

/**
 * The versions that an operation was agreed on, by {@link Looked}: if another is there now, the operation is refused. Null: the
 * name was free. Absent: any.
 */
export interface Expected {
  readonly from?: string | undefined;
  readonly to?: string | null | undefined;
}

export interface Expecting {
  readonly expected?: Expected | undefined;
}

export interface LookOptions {
  /** The operation that errors name. */
  readonly operation: FileOperation;
  /** With `refuse`, a link in the last component is itself the result, and one above it is an error. */
  readonly links: "follow" | "refuse";
  /** True: the content of a file of at most `MAX_EDIT_BYTES`, and everything in a directory. */
  readonly inside: boolean;
  readonly signal?: AbortSignal | undefined;
}

/** One entry as it is now. */
export interface Looked {
  /** Its real place, after links. */
  readonly path: VirtualPath;
  readonly type: EntryType;
  /** In bytes; 0 for everything but files. */
  readonly size: number;
  /** Permission bits. */
  readonly mode: number;
  /** Another text after every change of a file. */
  readonly version: string;
  /** Null: it was not asked for, is not a file, or is too large. */
  readonly content: Buffer | null;
  /** Everything below a directory, each directory before what is in it. Null: it was not asked for, or is no directory. */
  readonly entries: readonly Omit<Looked, "content" | "entries">[] | null;
}

export interface WriteOptions extends Guard, Expecting {
  /** False: refuse if the file exists. Absent: true. */
  readonly overwrite?: boolean | undefined;
}

export interface DeleteOptions extends Guard, Expecting {
  /** True: delete a folder with everything in it; of a link, the link itself. Absent: false. */
  readonly recursive?: boolean | undefined;
}

export interface TransferOptions extends Guard, Expecting {
  /** True: replace an existing file. A folder is never replaced. Absent: false. */
  readonly overwrite?: boolean | undefined;
}

export interface Written {
  /** The size of the file afterwards. */
  readonly bytes: number;
  readonly created: boolean;
}

export interface Edited {
  readonly bytes: number;
  readonly replacements: number;
}

export interface Deleted {
  readonly files: number;
  readonly folders: number;
}

export interface Transferred {
  readonly files: number;
  readonly bytes: number;
}

/** `link`: a link that was not followed. `other`: a FIFO, a socket or a device. */
export type EntryType = "file" | "directory" | "link" | "other";

export interface FileInfo {
  readonly path: VirtualPath;
  readonly type: EntryType;
  /** In bytes; null for everything but files. */
  readonly size: number | null;
  readonly modifiedMs: number;
}

export interface ListOptions {
  /** A glob. Absent: the direct entries of the directory. With `**` or `/` in it, subdirectories are searched too. */
  readonly pattern?: string | undefined;
  /** The directory that the pattern is relative to. Absent: the listed directory. */
  readonly base?: VirtualPath | undefined;
  /** The most entries to return. Absent, or more than it: `MAX_ENTRIES`. */
  readonly max?: number | undefined;
  /** Why an entry is counted and not listed; null: it is listed. Absent: all are. */
  readonly leavesOut?: ((entry: ListEntry) => keyof NotShown | null) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface ListEntry {
  readonly path: VirtualPath;
  /** Every symbolic link is a `link` here: listing follows none. */
  readonly type: EntryType;
  /** In bytes; null for everything but files. */
  readonly size: number | null;
}

export interface Listing {
  /** Sorted by path. */
  readonly entries: readonly ListEntry[];
  /** True if there is more than `entries`. */
  readonly truncated: boolean;
  /** The number of names left out because no path can hold them: invalid UTF-8, control characters, backslashes. */
  readonly unusableNames: number;
  /** The number of subdirectories that could not be read. */
  readonly unreadFolders: number;
  /** What the worker may not read, counted. */
  readonly notShown: NotShown;
  readonly hint: string | null;
}

/** A virtual path and its mount, which is what a backend works on. Only {@link mountedPlace} makes it. */
export interface Place {
  readonly path: VirtualPath;
  /** The path of the mount, by which a backend finds its root. */
  readonly mount: VirtualPath;
  /** The components of `path` below the mount; empty for the mount itself. None is `.`, `..` or holds a slash. */
  readonly parts: readonly string[];
}

/** Null if no mount contains `path`. */
export function mountedPlace(mounts: readonly Mount[], path: VirtualPath): Place | null {
  const mount = governingMount({ mounts }, path);
  if (mount === undefined) return null;
  const rest = below(mount.path, path) ?? "";
  return { path, mount: mount.path, parts: rest === "" ? [] : rest.split("/") };
}

/** True if there is a mount at or below `path`: the worker sees that mount, not what the disk has there. */
export function holdsMount(mounts: Iterable<VirtualPath>, path: VirtualPath): boolean {
  for (const mount of mounts) if (covers(path, mount)) return true;
  return false;
}

/** Why an entry cannot be read or written as a file; null if it can. */
export function whyNotRegular(type: EntryType): string | null {
  switch (type) {
    case "file":
      return null;
    case "directory":
      return IS_DIRECTORY;
    case "link":
      return "it is a symbolic link, and nothing is changed through links. Delete it first, or name the file that it leads to.";
    case "other":
      return "it is not a regular file (a FIFO, a socket or a device). Only regular files are opened.";
  }
}

/** Text is written as UTF-8. */
export function contentBytes(content: string | Uint8Array): Uint8Array {
  return typeof content === "string" ? Buffer.from(content) : content;
}

/** A change that a worker asks for, with the paths as it wrote them. */
export type Intended =
  | {
      readonly operation: "write";
      readonly path: string;
      readonly content: string | Uint8Array;
      readonly overwrite?: boolean | undefined;
    }
  | { readonly operation: "append"; readonly path: string; readonly content: string | Uint8Array }
  | { readonly operation: "edit"; readonly path: string; readonly edits: readonly Edit[] }
  | { readonly operation: "delete"; readonly path: string; readonly recursive?: boolean | undefined }
  | {
      readonly operation: "move" | "copy";
      readonly path: string;
      readonly to: string;
      readonly overwrite?: boolean | undefined;
    };

/** One version of a file. */
export interface Version {
  readonly bytes: number;
  /** Permission bits. Null: those of any new file. */
  readonly mode: number | null;
  /** Null: it is too large to be held, or one of many. */
  readonly content: Uint8Array | null;
}

export type Effect =
  /** `before`: null if there is no file. */
  | { readonly kind: "write"; readonly path: VirtualPath; readonly before: Version | null; readonly after: Version }
  | { readonly kind: "folder"; readonly path: VirtualPath }
  | { readonly kind: "delete"; readonly path: VirtualPath; readonly type: EntryType };

/** What an operation would do. It is not refused as things are now. */
export interface ForeseenOperation {
  readonly effects: readonly Effect[];
  /** For an edit: in how many places each text is replaced. */
  readonly places: readonly number[];
  /** Passed to the operation, so that it acts on what was seen here. */
  readonly expected: Expected;
}
