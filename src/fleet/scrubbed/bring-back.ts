import fs from "node:fs";
import { posix } from "node:path";
import { linkTextFault } from "../../changes/model/changeset.ts";
import { contentOf, copyContent } from "../../files/host/content.ts";
import { Descriptor, isRoot } from "../../files/host/descriptor.ts";
import { type HeldFolders, openSlot, type Slot } from "../../files/host/folder.ts";
import { unfit } from "../../files/model/refusals.ts";
import { hasCode } from "../../platform/errno.ts";
import { whyHostExecuted } from "../../sandbox/host-executed.ts";
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

/** What an item left under one name. Nothing changes it any more. */
interface Left {
  readonly name: string;
  readonly stats: fs.Stats;
  /** Of a folder. */
  readonly content: readonly Left[];
}

/**
 * Moves what an item left in its folder to its destination. No process can write there any more, so it is judged first and
 * then moved: regular files, folders, and links that stay inside. If anything else is found, nothing is moved.
 */
export async function bringBack(
  from: string,
  { base, parts, path, allowsHostExecuted }: ItemOutput,
  maxBytes: number,
  held: HeldFolders,
): Promise<BroughtBack> {
  using source = Descriptor.name(from, true);
  if (!isRoot()) fs.chmodSync(source.path(), 0o755);
  const judge = new Judge(path, maxBytes, allowsHostExecuted ? null : [base.host, ...parts].join("/"));
  const left = judge.folder(source, []);
  if (left === null) return { refusal: judge.refusal, bytes: 0 };
  if (left.length > 0) await moveInto({ path: from, source }, left, { base, parts, path }, held);
  return { refusal: null, bytes: judge.bytes };
}

class Judge {
  refusal: BroughtBack["refusal"] = null;
  bytes = 0;
  #entries = 0;
  readonly #path: VirtualPath;
  readonly #maxBytes: number;

  readonly #host: string | null;

  /** `host`: its place on the host, if what is executed there is refused. */
  constructor(path: VirtualPath, maxBytes: number, host: string | null) {
    this.#path = path;
    this.#maxBytes = maxBytes;
    this.#host = host;
  }

  /** Null if something there is refused. */
  folder(folder: Descriptor, parts: readonly string[]): Left[] | null {
    const left: Left[] = [];
    for (const raw of fs.readdirSync(folder.path(), { encoding: "buffer" })) {
      const name = raw.toString("utf8");
      const at = [...parts, name];
      const refuse = (reason: string): null => {
        this.refusal = { path: posix.join(this.#path, ...at), reason };
        return null;
      };
      this.#entries += 1;
      if (!Buffer.from(name).equals(raw)) return refuse("its name is not UTF-8");
      if (this.#entries > MAX_ENTRIES) return refuse(`there are more than ${MAX_ENTRIES} files and folders`);
      if (at.length > MAX_DEPTH) return refuse(`it is deeper than ${MAX_DEPTH} levels`);
      const stats = fs.lstatSync(folder.path(name));
      const reason = this.#reasonAgainst(stats, folder, name, parts);
      if (reason !== null) return refuse(reason);
      const content = stats.isDirectory() ? this.#inner(folder, name, at) : [];
      if (content === null) return null;
      left.push({ name, stats, content });
    }
    return left;
  }

  #inner(folder: Descriptor, name: string, at: readonly string[]): Left[] | null {
    using inner = folder.child(name, true);
    // Only root can read a folder that its owner has closed.
    if (!isRoot()) fs.chmodSync(inner.path(), inner.stat().mode | 0o700);
    return this.folder(inner, at);
  }

  #reasonAgainst(stats: fs.Stats, folder: Descriptor, name: string, parts: readonly string[]): string | null {
    if (stats.isDirectory()) return null;
    const kind = stats.isSymbolicLink() ? "link" : "file";
    const why = this.#host === null ? null : whyHostExecuted([this.#host, ...parts, name].join("/"), kind);
    if (why !== null) return `${why}, and no person is asked about an item of a shared cell. Use \`reuse: fresh\``;
    if (stats.isSymbolicLink()) return linkTextFault(fs.readlinkSync(folder.path(name)), parts.length);
    if (!stats.isFile()) return "it is not a file, a directory or a link";
    if ((stats.mode & 0o6000) !== 0) return "it is setuid or setgid: it would run as its owner or group";
    this.bytes += stats.size;
    return this.bytes > this.#maxBytes ? "it exceeds the disk limit" : null;
  }
}

/** Into the item's own folder, which is opened without following links and made if it is missing. */
async function moveInto(
  from: { readonly path: string; readonly source: Descriptor },
  left: readonly Left[],
  { base, parts, path }: Pick<ItemOutput, "base" | "parts" | "path">,
  held: HeldFolders,
): Promise<void> {
  const descriptor = held.folder(base.host);
  if (descriptor === null) throw unfit("write", base.path, "the granted directory cannot be opened on this machine.");
  const root = { path: base.path, descriptor, directory: true, hidden: [] };
  using slot = openSlot("write", root, { path, mount: base.path, parts }, true);
  if (isMovedWhole(from, slot)) return;
  const { source } = from;
  const isNew = madeFolder(slot, source);
  using target = slot.folder.child(slot.name, true);
  await moveAll(source, left, target, isNew);
}

/** False if something is there already, or the folder is on another file system. Above its name are only folders of root. */
function isMovedWhole({ path, source }: { readonly path: string; readonly source: Descriptor }, slot: Slot): boolean {
  const target = slot.folder.path(slot.name);
  if (fs.lstatSync(target, { throwIfNoEntry: false }) !== undefined) return false;
  fs.chmodSync(source.path(), 0o755);
  try {
    fs.renameSync(path, target);
    return true;
  } catch (error) {
    if (!hasCode(error, "EXDEV", "EEXIST", "ENOTEMPTY", "ENOTDIR")) throw error;
    return false;
  }
}

/** False if something is there. */
function madeFolder({ folder, name }: Slot, source: Descriptor): boolean {
  try {
    fs.mkdirSync(folder.path(name), 0o755);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    return false;
  }
  const { uid, gid } = source.stat();
  if (isRoot()) fs.lchownSync(folder.path(name), uid, gid);
  return true;
}

/** `isNew`: the target was made for this, and nothing can be in the way. */
async function moveAll(source: Descriptor, left: readonly Left[], target: Descriptor, isNew: boolean): Promise<void> {
  for (const { name, stats, content } of left) {
    const mayMerge = !isNew && stats.isDirectory();
    if (mayMerge && fs.lstatSync(target.path(name), { throwIfNoEntry: false })?.isDirectory()) {
      using from = source.child(name, true);
      using to = target.child(name, true);
      await moveAll(from, content, to, false);
    } else await moveOne(source, target, { name, stats, content });
  }
}

/** Atomic if both are on one file system: a reader sees the old file or the new one. */
async function moveOne(source: Descriptor, target: Descriptor, { name, stats, content }: Left): Promise<void> {
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
    await moveAll(from, content, to, true);
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
