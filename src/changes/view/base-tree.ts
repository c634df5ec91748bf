import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { contentOf, copyContent } from "../../files/host/content.ts";
import { Descriptor, isRoot, mountIdOf, pinned } from "../../files/host/descriptor.ts";
import { removeTree } from "../../files/host/system-program.ts";
import { codeOf, hasCode } from "../../platform/errno.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { formatBytes } from "../../text/amounts.ts";
import { type EntryFacts, factsOf, type RawName, rawChild, rawNamesIn, rawPath, rawStat } from "../model/changeset.ts";
import { type HostUser, lentFiles } from "./lending.ts";

/** One entry of a directory as it was when its view was made. */
export interface BaseNode {
  /** Null for anything but a file, a directory or a link. */
  readonly facts: EntryFacts | null;
  /** True if the view does not show it: it may not or cannot be read, or is not a file. Its absence is no deletion. */
  hidden: boolean;
  /** The entries of a directory. */
  readonly children: BaseTree | null;
  /** The identity of a copied file or link: while it is the same, the copy was not changed. */
  copied?: { readonly inode: string; readonly ctimeNs: string };
  /**
   * True, in an overlay, for an entry that the run made and that was applied already. If the run deletes it, the overlay shows
   * the applied one again and records no deletion, so the scan must know.
   */
  readonly brought?: boolean;
}

export type BaseTree = ReadonlyMap<RawName, BaseNode>;

/** The largest directory that can be staged. All its names are kept in memory during the run. */
export const MAX_STAGED_ENTRIES = 200_000;
/** The deepest directory that can be staged. */
export const MAX_STAGED_DEPTH = 128;
/** The number of entries after which other work of the process gets a turn. */
const SLICE = 1000;

/** A directory holds more than can be staged, or what cannot be opened now. */
export class CannotStage extends Error {}

export interface BaseRules {
  /** Whether a file of this size may be read. `names` lead to it from the root. */
  readonly shows: (names: readonly RawName[], size: number) => boolean;
  /** Whether another mount is at or above a place: it does not belong to this directory. */
  readonly isClosed: (names: readonly RawName[]) => boolean;
  /** The only name of the root that is read. Null: all. */
  readonly only: RawName | null;
  readonly signal?: AbortSignal | undefined;
}

/** Reads a whole directory by descriptor, without following links and without what is mounted inside. */
export async function readBaseTree(root: Descriptor, rules: BaseRules): Promise<BaseTree> {
  return await new Reader(rules, root).read(root, []);
}

class Reader {
  readonly #rules: BaseRules;
  readonly #device: bigint;
  readonly #mount: string;
  #entries = 0;

  constructor(rules: BaseRules, root: Descriptor) {
    this.#rules = rules;
    this.#device = BigInt(root.stat().dev);
    this.#mount = mountIdOf(root);
  }

  async read(folder: Descriptor, names: readonly RawName[]): Promise<BaseTree> {
    if (names.length > MAX_STAGED_DEPTH) throw new CannotStage(`it is deeper than ${MAX_STAGED_DEPTH} levels`);
    const { only } = this.#rules;
    const tree = new Map<RawName, BaseNode>();
    for (const name of names.length === 0 && only !== null ? [only] : rawNamesIn(folder)) {
      await this.#count();
      const at = [...names, name];
      const stats = rawStat(folder, name);
      if (stats === null || this.#rules.isClosed(at)) continue;
      const facts = factsOf(stats);
      if (facts?.type === "directory") tree.set(name, await this.#directory(folder, at, facts));
      else {
        const unread = facts?.type === "file" && !this.#rules.shows(at, facts.size);
        const hidden = facts === null || unread || (stats.dev !== this.#device && this.#isElsewhere(folder, name));
        tree.set(name, { facts, hidden, children: null });
      }
    }
    return tree;
  }

  async #directory(folder: Descriptor, at: readonly RawName[], facts: EntryFacts): Promise<BaseNode> {
    try {
      using named = rawChild(folder, at.at(-1) ?? "", true);
      if (mountIdOf(named) !== this.#mount) return { facts, hidden: true, children: null };
      return { facts, hidden: false, children: await this.read(named, at) };
    } catch (error) {
      // It disappeared, or the user that Corral runs as may not read it: the view does not show it.
      if (hasCode(error, "ENOENT", "ENOTDIR", "EACCES")) return { facts, hidden: true, children: null };
      throw error;
    }
  }

  /** In an overlay, files of one directory can have different devices, so the mount id decides. */
  #isElsewhere(folder: Descriptor, name: RawName): boolean {
    try {
      using named = rawChild(folder, name);
      return mountIdOf(named) !== this.#mount;
    } catch (error) {
      if (hasCode(error, "ENOENT")) return true;
      throw error;
    }
  }

  async #count(): Promise<void> {
    this.#entries += 1;
    if (this.#entries > MAX_STAGED_ENTRIES) throw new CannotStage(`it holds more than ${MAX_STAGED_ENTRIES} entries`);
    if (this.#entries % SLICE !== 0) return;
    this.#rules.signal?.throwIfAborted();
    await nextTurn();
  }
}

/** The most bytes that are copied for one view. */
const MAX_COPIED_BYTES = 4 * 1024 ** 3;

/** Errors of an entry that disappeared, changed its type, or cannot be read by the user that Corral runs as. */
const UNAVAILABLE: ReadonlySet<string> = new Set(["ENOENT", "ENOTDIR", "EACCES", "EINVAL", "ELOOP"]);

/**
 * Copies what a base tree shows, with owners and permission bits, and notes the identity of each copy. An entry that changed
 * since the tree was read is copied as it is now: applying a change to it finds the conflict.
 */
export async function copyTree(
  from: Descriptor,
  to: Descriptor,
  tree: BaseTree,
  { owner, signal }: CopyOptions = {},
): Promise<void> {
  await new TreeCopy(owner, signal).copy(from, to, tree);
}

interface CopyOptions {
  /** Whose the copy is. Absent: each entry keeps its owner. */
  readonly owner?: HostUser | undefined;
  readonly signal?: AbortSignal | undefined;
}

class TreeCopy {
  readonly #owner: HostUser | undefined;
  readonly #signal: AbortSignal | undefined;
  #bytes = 0;

  constructor(owner: HostUser | undefined, signal: AbortSignal | undefined) {
    this.#owner = owner;
    this.#signal = signal;
  }

  async copy(from: Descriptor, to: Descriptor, tree: BaseTree): Promise<void> {
    for (const [name, node] of tree) {
      this.#signal?.throwIfAborted();
      if (node.hidden || node.facts === null) continue;
      try {
        await this.#copyOne(from, to, name, node);
      } catch (error) {
        if (!UNAVAILABLE.has(codeOf(error) ?? "")) throw error;
        // The view does not show it, so its absence must not count as a deletion.
        node.hidden = true;
      }
    }
  }

  async #copyOne(from: Descriptor, to: Descriptor, name: RawName, node: BaseNode): Promise<void> {
    switch (node.facts?.type) {
      case "directory":
        await this.#copyFolder(from, to, name, node.children ?? new Map());
        return;
      case "link":
        fs.symlinkSync(fs.readlinkSync(rawPath(from, name), { encoding: "buffer" }), rawPath(to, name));
        giveLink(to, name, this.#owner ?? fs.lstatSync(rawPath(from, name)));
        break;
      default:
        await this.#copyFile(from, to, name);
    }
    const stats = rawStat(to, name);
    if (stats !== null) node.copied = { inode: String(stats.ino), ctimeNs: String(stats.ctimeNs) };
  }

  async #copyFolder(from: Descriptor, to: Descriptor, name: RawName, children: BaseTree): Promise<void> {
    using source = rawChild(from, name, true);
    fs.mkdirSync(rawPath(to, name), 0o700);
    using target = rawChild(to, name, true);
    await this.copy(source, target, children);
    likeFolder(target, source, this.#owner);
  }

  async #copyFile(from: Descriptor, to: Descriptor, name: RawName): Promise<void> {
    using named = rawChild(from, name);
    const stats = named.stat();
    if (!stats.isFile()) throw Object.assign(new Error("it is no longer a file"), { code: "EINVAL" });
    const { size, mode, atime, mtime } = stats;
    const { uid, gid } = this.#owner ?? stats;
    this.#bytes += size;
    if (this.#bytes > MAX_COPIED_BYTES)
      throw new CannotStage(`it holds more than ${formatBytes(MAX_COPIED_BYTES)} that would have to be copied`);
    using source = openNow(named);
    using file = Descriptor.create(rawPath(to, name), 0o600);
    await copyContent(contentOf(source), file, this.#signal);
    if (isRoot()) fs.fchownSync(file.fd, uid, gid);
    fs.fchmodSync(file.fd, mode & 0o777);
    fs.futimesSync(file.fd, atime, mtime);
  }
}

/** Left out, it would look to the worker as if it did not exist: so a file that cannot be opened now refuses the view. */
function openNow(named: Descriptor): Descriptor {
  try {
    return named.reopen(fs.constants.O_RDONLY);
  } catch (error) {
    if (!hasCode(error, "EAGAIN")) throw error;
    throw new CannotStage("another program holds one of its files with a lease", { cause: error });
  }
}

/** Sets owner (`owner`, if there is one) and permission bits like those of another folder. Only root can change the owner. */
export function likeFolder(folder: Descriptor, model: Descriptor, owner: HostUser = model.stat()): void {
  using opened = folder.reopen(fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  if (isRoot()) fs.fchownSync(opened.fd, owner.uid, owner.gid);
  fs.fchmodSync(opened.fd, model.stat().mode & 0o1777);
}

function giveLink(folder: Descriptor, name: RawName, { uid, gid }: HostUser): void {
  if (isRoot()) fs.lchownSync(rawPath(folder, name), uid, gid);
}

/**
 * Makes the mount point of another mount inside of a copy: an empty directory or file, as in the original. If a link or a
 * file is in the way, none is made, and the cell will not start.
 */
export function makeMountPoint(original: Descriptor, copy: Descriptor, names: readonly RawName[]): void {
  const [name, ...rest] = names;
  if (name === undefined) return;
  const there = rawStat(original, name);
  const isFolder = rest.length > 0 || there === null || there.isDirectory();
  if (rawStat(copy, name) === null) {
    if (isFolder) fs.mkdirSync(rawPath(copy, name), 0o755);
    else Descriptor.create(rawPath(copy, name), 0o644)[Symbol.dispose]();
  }
  if (rest.length === 0 || !there?.isDirectory() || !rawStat(copy, name)?.isDirectory()) return;
  using source = rawChild(original, name, true);
  using inner = rawChild(copy, name, true);
  makeMountPoint(source, inner, rest);
}

/** Copies of single files, by the host paths of the originals; disposing removes them. */
interface LentCopies extends AsyncDisposable {
  readonly copies: ReadonlyMap<string, string>;
}

interface LentCopiesRequest {
  readonly sandbox: Pick<Sandbox, "mounts" | "policy">;
  /** A directory to make below one of Corral's own, if there is anything to copy. */
  readonly dir: string;
  readonly isRefused: (host: string) => boolean;
  readonly signal: AbortSignal;
}

/** Copies the files that the user of the cell could not read. Rejects with `CannotStage` if they are too large. */
export async function lendFiles(
  hosts: readonly string[],
  { sandbox, dir, isRefused, signal }: LentCopiesRequest,
): Promise<LentCopies> {
  const { borrower, lent } = lentFiles(hosts, sandbox, isRefused);
  const copies = new Map<string, string>();
  const remove = async (): Promise<void> => {
    if (lent.length > 0) await removeTree(dir);
  };
  let bytes = 0;
  try {
    if (lent.length > 0) await mkdir(dir, { mode: 0o700 });
    for (const host of lent) {
      using found = pinned(host);
      // What is no file, or is gone, is refused when the cell is prepared.
      if (found === null || !found.stat().isFile()) continue;
      bytes += found.stat().size;
      if (bytes > MAX_COPIED_BYTES)
        throw new CannotStage(`more than ${formatBytes(MAX_COPIED_BYTES)} would have to be copied`);
      using source = found.reopen(fs.constants.O_RDONLY);
      const copy = join(dir, String(copies.size));
      using file = Descriptor.create(copy, 0o400);
      await copyContent(contentOf(source), file, signal);
      fs.fchownSync(file.fd, borrower.uid, borrower.gid);
      copies.set(host, copy);
    }
  } catch (error) {
    await remove();
    throw error;
  }
  return { copies, [Symbol.asyncDispose]: remove };
}
