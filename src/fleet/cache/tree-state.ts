import { createHash, type Hash } from "node:crypto";
import fs from "node:fs";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Descriptor, pinned } from "../../files/host/descriptor.ts";
import { codeOf } from "../../platform/errno.ts";

/** What a directory or a file was at one moment. */
export interface TreeState {
  /** For cache keys: by content if the tree is small, else the same as {@link exact}. */
  readonly digest: string;
  /** Changes with every change, also one that is undone later: from devices, inodes, sizes and times. */
  readonly exact: string;
}

/** The host paths that are not part of a tree, with all that is below them. */
export interface ExcludedPaths {
  has(host: string): boolean;
  /** True for a directory above one of them: its own size and times do not count. */
  isAbove(host: string): boolean;
}

export const NONE_EXCLUDED: ExcludedPaths = { has: () => false, isAbove: () => false };

/** A tree up to this size is known by its content. Both limits are in docs/fleets.md. */
const MAX_SMALL_ENTRIES = 10_000;
const MAX_SMALL_BYTES = 64 * 1024 ** 2;
const MAX_ENTRIES = 1_000_000;
const MAX_DEPTH = 256;
/** After so many entries, or so many bytes, other work of the process gets a turn. */
const SLICE = 500;
const CHUNK_BYTES = 1024 ** 2;

/** Links are not followed. Null if there is nothing, or if it cannot be read to its end: what depends on it is not known then. */
export async function treeState(host: string, leftOut: ExcludedPaths, signal: AbortSignal): Promise<TreeState | null> {
  const exact = await walked(host, leftOut, signal, lineOf);
  if (exact === null) return null;
  const isSmall = exact.entries <= MAX_SMALL_ENTRIES && exact.bytes <= MAX_SMALL_BYTES;
  const content = isSmall ? await walked(host, leftOut, signal, contentOf) : exact;
  return content === null ? null : { exact: exact.digest, digest: content.digest };
}

/** Only {@link TreeState.exact}, without reading content. */
export async function exactState(host: string, leftOut: ExcludedPaths, signal: AbortSignal): Promise<string | null> {
  return (await walked(host, leftOut, signal, lineOf))?.digest ?? null;
}

interface Walked {
  readonly digest: string;
  readonly entries: number;
  readonly bytes: number;
}

interface Entry {
  /** The directory that it is in; null for the tree itself. */
  readonly folder: Descriptor;
  readonly name: Buffer;
  readonly stats: fs.BigIntStats;
  /** False for a directory that also holds what is left out. */
  readonly isWhole: boolean;
}

type Describe = (entry: Entry, hash: Hash) => Promise<void>;

async function walked(
  host: string,
  leftOut: ExcludedPaths,
  signal: AbortSignal,
  describe: Describe,
): Promise<Walked | null> {
  using root = pinned(host);
  if (root === null) return null;
  const walk = { hash: createHash("sha256"), entries: 0, bytes: 0 };
  const visit = async (entry: Entry, path: string, depth: number): Promise<boolean> => {
    walk.entries += 1;
    if (walk.entries > MAX_ENTRIES || depth > MAX_DEPTH) return false;
    if (walk.entries % SLICE === 0) {
      if (signal.aborted) return false;
      await nextTurn();
    }
    const { stats, folder, name } = entry;
    // The depth makes the sequence of names unambiguous.
    walk.hash.update(`${depth} ${name.length} `).update(name);
    if (stats.isFile()) walk.bytes += Number(stats.size);
    await describe(entry, walk.hash);
    if (!stats.isDirectory()) return true;
    using inner = name.length === 0 ? folder.again() : folder.child(name, true);
    for (const child of fs.readdirSync(inner.path(), { encoding: "buffer" }).sort(Buffer.compare)) {
      const at = join(path, child.toString());
      if (leftOut.has(at)) continue;
      const found = fs.lstatSync(inner.path(child), { bigint: true });
      const next = { folder: inner, name: child, stats: found, isWhole: !leftOut.isAbove(at) };
      if (!(await visit(next, at, depth + 1))) return false;
    }
    return true;
  };
  try {
    const stats = fs.fstatSync(root.fd, { bigint: true });
    const whole = await visit({ folder: root, name: Buffer.alloc(0), stats, isWhole: !leftOut.isAbove(host) }, host, 0);
    return whole ? { digest: walk.hash.digest("hex"), entries: walk.entries, bytes: walk.bytes } : null;
  } catch (error) {
    // It changes while it is read, or may not be read: its state is not known.
    if (codeOf(error) === undefined) throw error;
    return null;
  }
}

async function lineOf({ stats, isWhole }: Entry, hash: Hash): Promise<void> {
  const { dev, ino, mode, uid, gid, size, mtimeNs, ctimeNs } = stats;
  hash.update(` ${dev} ${ino} ${mode} ${uid} ${gid} ${isWhole ? `${size} ${mtimeNs} ${ctimeNs}` : ""}\n`);
}

async function contentOf({ folder, name, stats }: Entry, hash: Hash): Promise<void> {
  const { mode, uid, gid, size } = stats;
  hash.update(` ${mode} ${uid} ${gid} ${stats.isFile() ? size : ""}\n`);
  if (stats.isSymbolicLink()) {
    const text = fs.readlinkSync(folder.path(name), { encoding: "buffer" });
    hash.update(`${text.length} `).update(text);
  } else if (stats.isFile()) await fileContent(folder, name, hash);
}

/** The bytes of a regular file. If it grows meanwhile, its exact state differs at the end. */
async function fileContent(folder: Descriptor, name: Buffer, hash: Hash): Promise<void> {
  using named = name.length === 0 ? folder.again() : folder.child(name);
  if (!named.stat().isFile()) throw Object.assign(new Error("it is no longer a file"), { code: "EINVAL" });
  using file = named.reopen(fs.constants.O_RDONLY | fs.constants.O_NONBLOCK);
  const chunk = Buffer.alloc(Math.min(CHUNK_BYTES, named.stat().size + 1));
  for (let left = MAX_SMALL_BYTES + 1; left > 0; ) {
    const read = fs.readSync(file.fd, chunk, 0, Math.min(chunk.length, left), null);
    if (read === 0) return;
    hash.update(chunk.subarray(0, read));
    left -= read;
    if (read === CHUNK_BYTES) await nextTurn();
  }
  throw Object.assign(new Error("it grows while it is read"), { code: "EFBIG" });
}
