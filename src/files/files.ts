import type { VirtualPath } from "../sandbox/virtual-path.ts";
import type { Edit } from "./edit/apply-edits.ts";
import type { Listing, ListOptions } from "./list/listing.ts";
import type { EntryType } from "./model/entry-type.ts";
import type { Place } from "./model/place.ts";
import type { ReadOptions, ReadResult } from "./read/read-content.ts";

/**
 * File operations on places of a virtual namespace. Every refusal is a thrown `SandboxError` whose text holds virtual
 * paths only; anything else that is thrown is a bug, or the reason of an aborted signal.
 *
 * Links: reading, copying from, listing and looking at a place follow symbolic links, as long as their text is relative
 * and they stay inside the mount. Nothing is ever written through a link; deleting one removes the link itself.
 */
export interface Files {
  read(place: Place, options?: ReadOptions & Guard): Promise<ReadResult>;
  /** Replaces the whole file at once: a reader sees the old or the new content. Creates parent folders. */
  write(place: Place, content: string | Uint8Array, options?: WriteOptions): Promise<Written>;
  append(place: Place, content: string | Uint8Array, options?: Guard): Promise<Written>;
  edit(place: Place, edits: readonly Edit[], options?: Guard): Promise<Edited>;
  delete(place: Place, options?: DeleteOptions): Promise<Deleted>;
  move(from: Place, to: Place, options?: TransferOptions): Promise<Transferred>;
  copy(from: Place, to: Place, options?: TransferOptions): Promise<Transferred>;
  /** Creates the folder and its parents; one that is there already is fine. */
  mkdir(place: Place): Promise<{ readonly created: boolean }>;
  /** True where a name stands, be it a link that leads nowhere. */
  exists(place: Place): Promise<boolean>;
  stat(place: Place): Promise<FileInfo>;
  list(place: Place, options?: ListOptions): Promise<Listing>;
  [Symbol.dispose](): void;
}

/**
 * What is asked about a file once it is pinned and before its content is read or changed. It throws to refuse. `path`
 * is where the file really stands, after links; `size` is in bytes, after the change where there is one.
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

export interface WriteOptions extends Guard {
  /** False: an existing file is a refusal. Absent: true. */
  readonly overwrite?: boolean | undefined;
}

export interface DeleteOptions extends Guard {
  /** True: a folder goes with all that is in it, links themselves included. Absent: false. */
  readonly recursive?: boolean | undefined;
}

export interface TransferOptions extends Guard {
  /** True: an existing file is replaced. A folder never is. Absent: false. */
  readonly overwrite?: boolean | undefined;
}

export interface Written {
  /** The size of the file afterwards. */
  readonly bytes: number;
  readonly created: boolean;
}

export interface Edited {
  readonly bytes: number;
  /** SHA-256 of the whole content that the edits were made in, in hexadecimal digits. */
  readonly before: string;
  /** The same of the content afterwards. */
  readonly digest: string;
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

export interface FileInfo {
  readonly path: VirtualPath;
  readonly type: EntryType;
  /** In bytes; null for all but files. */
  readonly size: number | null;
  readonly modifiedMs: number;
}
