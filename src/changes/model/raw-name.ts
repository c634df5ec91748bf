import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import type { EntryFacts } from "./changeset.ts";

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
export function textOf(name: RawName): string | null {
  // A worker can make a hundred thousand long names.
  if (ASCII.test(name)) return name;
  const bytes = rawBytes(name);
  return isUtf8(bytes) ? bytes.toString() : null;
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
