import fs from "node:fs";
import { posix } from "node:path";
import { linkTextFault } from "../../changes/model/link-text.ts";
import { contentOf, copyContent } from "../../files/host/content.ts";
import { Descriptor, isRoot } from "../../files/host/descriptor.ts";
import { openSlot } from "../../files/host/folder.ts";
import { openRoots } from "../../files/host/roots.ts";
import { hasCode } from "../../platform/errno.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ItemOutput } from "./shape.ts";

/** The most files and folders that one item may leave, and the deepest. */
const MAX_ENTRIES = 10_000;
const MAX_DEPTH = 64;

export interface BroughtBack {
  /** Why nothing was brought back; null if all was. */
  readonly refusal: { readonly path: string; readonly reason: string } | null;
  readonly bytes: number;
}

/**
 * Moves what an item left in its folder to its destination. No process can write there any more, so it is judged first and
 * then moved: regular files, folders, and links that stay inside. If anything else is found, nothing is moved.
 */
export async function bringBack(
  from: string,
  { base, parts, path }: ItemOutput,
  maxBytes: number,
): Promise<BroughtBack> {
  using source = Descriptor.name(from, true);
  const judge = new Judge(path, maxBytes);
  const reason = judge.folder(source, []);
  if (reason !== null) return { refusal: reason, bytes: 0 };
  if (judge.entries > 0) await moveInto(source, base, parts, path);
  return { refusal: null, bytes: judge.bytes };
}

class Judge {
  entries = 0;
  bytes = 0;
  readonly #path: VirtualPath;
  readonly #maxBytes: number;

  constructor(path: VirtualPath, maxBytes: number) {
    this.#path = path;
    this.#maxBytes = maxBytes;
  }

  folder(folder: Descriptor, parts: readonly string[]): BroughtBack["refusal"] {
    for (const raw of fs.readdirSync(folder.path(), { encoding: "buffer" })) {
      const name = raw.toString("utf8");
      const at = [...parts, name];
      const refuse = (reason: string) => ({ path: posix.join(this.#path, ...at), reason });
      this.entries += 1;
      if (!Buffer.from(name).equals(raw)) return refuse("its name is not UTF-8");
      if (this.entries > MAX_ENTRIES) return refuse(`there are more than ${MAX_ENTRIES} files and folders`);
      if (at.length > MAX_DEPTH) return refuse(`it is deeper than ${MAX_DEPTH} levels`);
      const stats = fs.lstatSync(folder.path(name));
      const reason = this.#reasonAgainst(stats, folder, name, parts);
      if (reason !== null) return refuse(reason);
      if (!stats.isDirectory()) continue;
      using inner = folder.child(name, true);
      const found = this.folder(inner, at);
      if (found !== null) return found;
    }
    return null;
  }

  #reasonAgainst(stats: fs.Stats, folder: Descriptor, name: string, parts: readonly string[]): string | null {
    if (stats.isDirectory()) return null;
    if (stats.isSymbolicLink()) return linkTextFault(fs.readlinkSync(folder.path(name)), parts.length);
    if (!stats.isFile()) return "it is not a file, a directory or a link";
    if ((stats.mode & 0o6000) !== 0) return "it is setuid or setgid: it would run as its owner or group";
    this.bytes += stats.size;
    return this.bytes > this.#maxBytes ? "it exceeds the disk limit" : null;
  }
}

/** Into the item's own folder, which is opened without following links and made if it is missing. */
async function moveInto(source: Descriptor, base: Mount, parts: readonly string[], path: VirtualPath): Promise<void> {
  using roots = openRoots([base]);
  using slot = openSlot("write", roots.get("write", base.path), { path, mount: base.path, parts }, true);
  if (fs.lstatSync(slot.folder.path(slot.name), { throwIfNoEntry: false }) === undefined) {
    fs.mkdirSync(slot.folder.path(slot.name), 0o755);
    const { uid, gid } = source.stat();
    if (isRoot()) fs.lchownSync(slot.folder.path(slot.name), uid, gid);
  }
  using target = slot.folder.child(slot.name, true);
  await moveAll(source, target);
}

async function moveAll(source: Descriptor, target: Descriptor): Promise<void> {
  for (const name of fs.readdirSync(source.path())) {
    const stats = fs.lstatSync(source.path(name));
    const there = fs.lstatSync(target.path(name), { throwIfNoEntry: false });
    if (stats.isDirectory() && there?.isDirectory()) {
      using from = source.child(name, true);
      using to = target.child(name, true);
      await moveAll(from, to);
    } else await moveOne(source, target, name, stats);
  }
}

/** Atomic if both are on one file system: a reader sees the old file or the new one. */
async function moveOne(source: Descriptor, target: Descriptor, name: string, stats: fs.Stats): Promise<void> {
  try {
    fs.renameSync(source.path(name), target.path(name));
    return;
  } catch (error) {
    if (!hasCode(error, "EXDEV")) throw error;
  }
  const temporary = target.path(`.corral-unfinished-${crypto.randomUUID()}`);
  if (stats.isDirectory()) {
    fs.mkdirSync(temporary, 0o755);
    using from = source.child(name, true);
    using to = new Descriptor(fs.openSync(temporary, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY));
    await moveAll(from, to);
    fs.fchownSync(to.fd, stats.uid, stats.gid);
    fs.fchmodSync(to.fd, stats.mode & 0o777);
  } else if (stats.isSymbolicLink()) {
    fs.symlinkSync(fs.readlinkSync(source.path(name)), temporary);
    fs.lchownSync(temporary, stats.uid, stats.gid);
  } else {
    using named = source.child(name);
    using from = named.reopen(fs.constants.O_RDONLY);
    using to = Descriptor.create(temporary, 0o600);
    await copyContent(contentOf(from), to);
    fs.fchownSync(to.fd, stats.uid, stats.gid);
    fs.fchmodSync(to.fd, stats.mode & 0o777);
  }
  fs.renameSync(temporary, target.path(name));
}
