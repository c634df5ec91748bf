import { createHash } from "node:crypto";
import fs from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { Descriptor } from "../files/host/descriptor.ts";
import { BlobRefused, type BlobStore } from "./blob.ts";
import { fillFile } from "./file-content.ts";
import { inParallel } from "./in-parallel.ts";
import type { KnownFiles } from "./known-files.ts";
import type { RawPath, Tree, TreeEntry } from "./tree.ts";

type FileEntry = Extract<TreeEntry, { type: "file" }>;

/** The number of entries after which other work of the process gets a turn. */
const SLICE = 500;

/** A user of this machine, and its group. */
export interface MirrorUser {
  readonly uid: number;
  readonly gid: number;
}

export interface MirrorParts {
  readonly known: KnownFiles;
  /** Has the content that `known` does not have. */
  readonly store: BlobStore;
  /** The owner of every entry. Undefined: Corral's own user. */
  readonly user: MirrorUser | undefined;
}

/**
 * Makes a tree in an empty directory of Corral's own. Each step goes by descriptor and makes a new entry: nothing that is there
 * is written to or followed, so that a name which the file system takes for another (by case, or by its form in Unicode) fails.
 */
export async function makeMirror(tree: Tree, dir: string, from: MirrorParts, signal: AbortSignal): Promise<void> {
  using root = Descriptor.name(dir, true);
  const files: FileEntry[] = [];
  for (const [index, entry] of tree.entries.entries()) {
    if (index % SLICE === 0) await turn(signal);
    if (entry.type === "file") files.push(entry);
    else makeEntry(root, entry, from.user);
  }
  await inParallel(files, async (entry) => {
    signal.throwIfAborted();
    await makeFile(root, entry, from, signal);
  });
  if (from.user !== undefined) fs.chownSync(root.path(), from.user.uid, from.user.gid);
  // From the bottom: a directory without write permission could not be filled.
  for (const entry of tree.entries.toReversed()) if (entry.type === "directory") setMode(root, entry);
  fs.chmodSync(root.path(), tree.rootMode ?? 0o755);
}

function makeEntry(root: Descriptor, entry: TreeEntry, user: MirrorUser | undefined): void {
  using slot = slotOf(root, entry.path);
  const place = slot.folder.path(slot.name) as unknown as string;
  if (entry.type === "link") fs.symlinkSync(entry.target, place);
  else fs.mkdirSync(place, 0o700);
  if (user !== undefined) fs.lchownSync(place, user.uid, user.gid);
}

async function makeFile(
  root: Descriptor,
  entry: FileEntry,
  { known, store, user }: MirrorParts,
  signal: AbortSignal,
): Promise<void> {
  const { path, digest, bytes, mode } = entry;
  using slot = slotOf(root, path);
  using file = Descriptor.create(slot.folder.path(slot.name), 0o600);
  const isHere = bytes === 0 || (await known.fill(file, entry, signal));
  const written = isHere ? bytes : await fillFile(file, store.get(digest, bytes, signal));
  if (written !== bytes) throw new BlobRefused("mismatch", digest, `it has ${written} bytes and not ${bytes}`);
  if (user !== undefined) fs.fchownSync(file.fd, user.uid, user.gid);
  fs.fchmodSync(file.fd, mode);
}

function setMode(root: Descriptor, { path, mode }: TreeEntry): void {
  using slot = slotOf(root, path);
  using folder = slot.folder.child(slot.name, true);
  fs.chmodSync(folder.path(), mode);
}

function slotOf(root: Descriptor, path: RawPath) {
  const names = path.split("/").map((name) => Buffer.from(name, "latin1"));
  const folder = root.below(names.slice(0, -1));
  return { folder, name: names.at(-1) ?? Buffer.alloc(0), [Symbol.dispose]: () => folder[Symbol.dispose]() };
}

/**
 * Changes with every change in a directory, also one that is undone: the kernel sets the times of change, and no program can
 * choose them. Nothing is opened but directories.
 */
export async function exactState(dir: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  let looked = 0;
  const look = async (folder: Descriptor, path: string): Promise<void> => {
    for (const name of fs.readdirSync(folder.path(), { encoding: "latin1" }).sort()) {
      looked += 1;
      if (looked % SLICE === 0) await turn(signal);
      const bytes = Buffer.from(name, "latin1");
      const stats = fs.lstatSync(folder.path(bytes) as unknown as string, { bigint: true });
      hash.update(JSON.stringify([`${path}${name}`, ...factsOf(stats)]));
      if (!stats.isDirectory()) continue;
      using inner = folder.child(bytes, true);
      await look(inner, `${path}${name}/`);
    }
  };
  using root = Descriptor.name(dir, true);
  hash.update(JSON.stringify(factsOf(fs.fstatSync(root.fd, { bigint: true }))));
  await look(root, "");
  return hash.digest("hex");
}

function factsOf({ mode, size, ino, ctimeNs }: fs.BigIntStats): string[] {
  return [mode, size, ino, ctimeNs].map(String);
}

async function turn(signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  await nextTurn();
}
