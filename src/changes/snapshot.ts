import { createHash } from "node:crypto";
import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { contentOf, copyContent } from "../files/host/content.ts";
import { Descriptor, isRoot } from "../files/host/descriptor.ts";
import { hasCode } from "../platform/errno.ts";
import { type Change, type Changeset, type EntryFacts, factsOf } from "./model/changeset.ts";

/** The part of a file that is held in memory at a time. */
const PIECE_BYTES = 1024 ** 2;

/**
 * The same changeset with a copy of all its content in `dir`, so that what is shown and approved is what is applied, even
 * if the run writes again. An entry that disappeared or changed is refused.
 */
export async function snapshotOf(changeset: Changeset, dir: string, signal?: AbortSignal): Promise<Changeset> {
  await mkdir(dir, { mode: 0o700 });
  const mounts = changeset.mounts.map((mount, index) => ({ ...mount, content: join(dir, String(index)) }));
  await Promise.all(mounts.map((mount) => mkdir(mount.content, { mode: 0o700 })));
  const changes: Change[] = [];
  for (const change of changeset.changes) {
    const [from, to] = [changeset.mounts[change.mount], mounts[change.mount]];
    if (from === undefined || to === undefined) continue;
    changes.push(await takenFrom(change, from.content, to.content, signal));
  }
  return { ...changeset, mounts, changes };
}

async function takenFrom(change: Change, from: string, to: string, signal: AbortSignal | undefined): Promise<Change> {
  if (change.refusal !== null || change.kind === "delete") return change;
  const next = await copied(change, from, join(to, ...change.parts), signal);
  return typeof next === "string" ? { ...change, refusal: next } : { ...change, next };
}

const CHANGED_AGAIN = "it changed again while it was checked";
const LEASED = "another program holds it with a lease";
/** By changing directory step by step, a worker can make paths that are too long for a system call. */
const TOO_LONG = "its path is too long";

/** Copies one entry, or returns why not. It goes by descriptor and through no link, since the worker may still be running. */
async function copied(
  change: Change,
  from: string,
  to: string,
  signal: AbortSignal | undefined,
): Promise<EntryFacts | string> {
  try {
    using named = nameOf(from, change.parts);
    const stats = named.stat();
    await mkdir(dirname(to), { recursive: true, mode: 0o700 });
    switch (change.type) {
      case "directory":
        return (stats.isDirectory() ? await folderLike(stats, to) : null) ?? CHANGED_AGAIN;
      case "link":
        return (stats.isSymbolicLink() ? linkLike(stats, change, to) : null) ?? CHANGED_AGAIN;
      default:
        if (!stats.isFile() || stats.size !== change.next?.size) return CHANGED_AGAIN;
        return (await fileLike(named, to, signal)) ?? CHANGED_AGAIN;
    }
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR", "ELOOP")) return CHANGED_AGAIN;
    if (hasCode(error, "ENAMETOOLONG")) return TOO_LONG;
    if (hasCode(error, "EAGAIN")) return LEASED;
    throw error;
  }
}

/** The facts have the original mode; the copy itself stays writable, to be filled. */
async function folderLike({ uid, gid, mode }: fs.Stats, to: string): Promise<EntryFacts | null> {
  await mkdir(to, { recursive: true, mode: 0o700 });
  if (isRoot()) fs.lchownSync(to, uid, gid);
  const facts = factsOf(fs.lstatSync(to, { bigint: true }));
  return facts === null ? null : { ...facts, mode: mode & 0o7777 };
}

/** With the target that was checked, even if the link changed since. */
function linkLike({ uid, gid }: fs.Stats, { linkText }: Change, to: string): EntryFacts | null {
  if (linkText === undefined) return null;
  fs.symlinkSync(linkText, to);
  if (isRoot()) fs.lchownSync(to, uid, gid);
  return factsOf(fs.lstatSync(to, { bigint: true }));
}

async function fileLike(named: Descriptor, to: string, signal: AbortSignal | undefined): Promise<EntryFacts | null> {
  using source = named.reopen(fs.constants.O_RDONLY);
  const stats = source.stat();
  using file = Descriptor.create(to, 0o600);
  await copyContent(contentOf(source), file, signal);
  if (isRoot()) fs.fchownSync(file.fd, stats.uid, stats.gid);
  fs.fchmodSync(file.fd, stats.mode & 0o777);
  fs.futimesSync(file.fd, stats.atime, stats.mtime);
  return factsOf(fs.fstatSync(file.fd, { bigint: true }));
}

export function nameOf(root: string, parts: readonly string[]): Descriptor {
  using top = Descriptor.name(root, true);
  using folder = top.below(parts.slice(0, -1));
  return folder.child(parts.at(-1) ?? ".");
}

/** The SHA-256 of a file below a directory, in hexadecimal. Null if there is none, or it is larger. */
export async function digestAt(
  root: string,
  parts: readonly string[],
  maxBytes: number,
  signal?: AbortSignal,
): Promise<string | null> {
  try {
    using named = nameOf(root, parts);
    if (!named.stat().isFile()) return null;
    using file = named.reopen(fs.constants.O_RDONLY);
    const source = contentOf(file);
    if (source.size > maxBytes) return null;
    const hash = createHash("sha256");
    for (let at = 0; at < source.size; at += PIECE_BYTES) {
      signal?.throwIfAborted();
      hash.update(await source.read(at, PIECE_BYTES));
    }
    return hash.digest("hex");
  } catch (error) {
    // If it cannot be read, approval is asked for.
    if ((error as NodeJS.ErrnoException).syscall === undefined) throw error;
    return null;
  }
}
