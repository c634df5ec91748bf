import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import { basename, dirname } from "node:path";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { type Descriptor, mountIdOf, pinned } from "../files/host/descriptor.ts";
import { codeOf, hasCode } from "../platform/errno.ts";
import { checkRead } from "../sandbox/access.ts";
import type { Mount } from "../sandbox/mount.ts";
import { covers, joinVirtual, type VirtualPath } from "../sandbox/virtual-path.ts";
import {
  type Blob,
  BlobRefused,
  type BlobStore,
  blobDigest,
  blobOf,
  type Digest,
  inParallel,
  piecesOf,
  putBytes,
} from "./blob.ts";
import {
  formatManifest,
  pathFault,
  type RawPath,
  shownPath,
  TREE_LIMITS,
  type Tree,
  TreeChanged,
  type TreeEntry,
  type TreeLimits,
  TreeRefused,
} from "./manifest.ts";

/** What a mount shows, and what of it cannot travel. */
export interface ReadTree {
  readonly tree: Tree;
  /** At most {@link MAX_LEFT_OUT}. */
  readonly leftOut: readonly UnsentEntry[];
}

export interface UnsentEntry {
  readonly path: string;
  readonly reason: string;
}

export interface TreeRequest {
  readonly mount: Mount;
  /** All mounts of the sandbox: what others of them show is not a part of this tree. */
  readonly mounts: readonly Mount[];
  readonly limits?: TreeLimits;
  readonly signal?: AbortSignal;
}

const MAX_LEFT_OUT = 100;
/** The number of entries after which other work of the process gets a turn. */
const SLICE = 500;
const NO_BYTES = Buffer.alloc(0);
const EMPTY_FILE: Blob = { digest: blobDigest(NO_BYTES), bytes: 0 };

/**
 * Reads everything that a mount allows to be read, by descriptor and through no link, with the digest of each file. What is no
 * file, directory or link, cannot be opened, or is on another file system, is left out. Throws `TreeRefused` if it is more than
 * the limits, or a file changes while it is read.
 */
export async function readTree(request: TreeRequest): Promise<ReadTree> {
  const { mount } = request;
  using found = pinned(mount.host);
  if (found === null) throw new TreeRefused(`${mount.path} cannot be sent to other machines: it cannot be opened`);
  const reader = new TreeReader(request, found);
  if (found.stat().isDirectory()) {
    await reader.folder(found, []);
    return reader.end(found.stat().mode & 0o777);
  }
  using folder = pinned(dirname(mount.host));
  if (folder === null) throw new TreeRefused(`${mount.path} cannot be sent to other machines: it cannot be opened`);
  await reader.entry(folder, [Buffer.from(basename(mount.host)).toString("latin1")]);
  return reader.end(null);
}

class TreeReader {
  readonly #request: TreeRequest;
  readonly #limits: TreeLimits;
  readonly #closed: readonly VirtualPath[];
  readonly #single: boolean;
  readonly #device: string;
  readonly #entries: TreeEntry[] = [];
  readonly #leftOut: UnsentEntry[] = [];
  #looked = 0;
  #bytes = 0;

  constructor(request: TreeRequest, root: Descriptor) {
    const { mount, mounts, limits = TREE_LIMITS } = request;
    this.#request = request;
    this.#limits = limits;
    this.#single = !root.stat().isDirectory();
    this.#device = mountIdOf(root);
    this.#closed = mounts.map(({ path }) => path).filter((path) => path !== mount.path && covers(mount.path, path));
  }

  async folder(folder: Descriptor, names: readonly string[]): Promise<void> {
    for (const name of fs.readdirSync(folder.path(), { encoding: "latin1" }))
      await this.entry(folder, [...names, name]);
  }

  async entry(folder: Descriptor, names: readonly string[]): Promise<void> {
    const path = names.join("/");
    await this.#count(path);
    const name = Buffer.from(names.at(-1) ?? "", "latin1");
    try {
      using found = folder.child(name);
      const stats = found.stat();
      const virtual = this.#virtual(path);
      if (stats.isDirectory()) {
        using inner = folder.child(name, true);
        // Another mount is shown over it, or something that this mount does not show: only the place for it is needed.
        const isClosed = this.#isClosed(virtual);
        if (!isClosed && mountIdOf(inner) !== this.#device)
          return this.#leave(path, "another file system is mounted there");
        if (!isClosed) fs.accessSync(inner.path(), fs.constants.R_OK | fs.constants.X_OK);
        this.#entries.push({ path, type: "directory", mode: stats.mode & 0o777 });
        if (!isClosed) await this.folder(inner, names);
      } else if (stats.isSymbolicLink()) {
        this.#link(path, fs.readlinkSync(folder.path(name) as unknown as string, { encoding: "buffer" }));
      } else if (!stats.isFile()) this.#leave(path, "it is no file, directory or link");
      else if (mountIdOf(found) !== this.#device) this.#leave(path, "another file system is mounted there");
      else await this.#file(found, path, virtual);
    } catch (error) {
      if (hasCode(error, "ENOENT", "ENOTDIR")) return;
      if (!hasCode(error, "EACCES", "EPERM", "EAGAIN")) throw error;
      this.#leave(path, hasCode(error, "EAGAIN") ? "another program holds it with a lease" : "it may not be read");
    }
  }

  async #file(found: Descriptor, path: RawPath, virtual: VirtualPath | null): Promise<void> {
    const { mount, signal } = this.#request;
    const { size, mode } = found.stat();
    const isClosed = this.#isClosed(virtual);
    if (!isClosed && !isShown(mount, virtual, size)) return;
    this.#bytes += isClosed ? 0 : size;
    if (this.#bytes > this.#limits.bytes)
      throw this.#refused(path, `with it, there are more than ${this.#limits.bytes} bytes`);
    using file = isClosed ? null : found.reopen(fs.constants.O_RDONLY);
    const blob = file === null ? EMPTY_FILE : await blobOf(file, signal);
    if (blob === null || (!isClosed && blob.bytes !== size))
      throw new TreeChanged(this.#why(path, "it changed while it was read. Try again when no program writes there"));
    this.#entries.push({ path, type: "file", mode: mode & 0o777, ...blob });
  }

  #link(path: RawPath, target: Buffer): void {
    if (target.length === 0 || !isUtf8(target)) this.#leave(path, "it is a link whose target is not UTF-8");
    else this.#entries.push({ path, type: "link", mode: 0o777, target: target.toString("utf8") });
  }

  /** Null if a name is not UTF-8. */
  #virtual(path: RawPath): VirtualPath | null {
    const { mount } = this.#request;
    if (this.#single) return mount.path;
    const bytes = Buffer.from(path, "latin1");
    return isUtf8(bytes) ? joinVirtual(mount.path, bytes.toString("utf8")) : null;
  }

  #isClosed(virtual: VirtualPath | null): boolean {
    return virtual !== null && !this.#single && this.#closed.some((inner) => covers(inner, virtual));
  }

  async #count(path: RawPath): Promise<void> {
    this.#looked += 1;
    if (this.#looked > this.#limits.entries)
      throw this.#refused(path, `it is one of more than ${this.#limits.entries} entries`);
    const fault = pathFault(path, this.#limits);
    if (fault !== null) throw this.#refused(path, fault);
    if (this.#looked % SLICE !== 0) return;
    this.#request.signal?.throwIfAborted();
    await nextTurn();
  }

  #refused(path: RawPath, why: string): TreeRefused {
    return new TreeRefused(this.#why(path, why));
  }

  #why(path: RawPath, why: string): string {
    return `${this.#request.mount.path} cannot be sent to other machines: '${shownPath(path)}': ${why}`;
  }

  #leave(path: RawPath, reason: string): void {
    if (this.#leftOut.length < MAX_LEFT_OUT) this.#leftOut.push({ path: shownPath(path), reason });
  }

  end(rootMode: number | null): ReadTree {
    const entries = this.#entries.toSorted((a, b) => (a.path < b.path ? -1 : 1));
    if (rootMode === null && entries.length === 0)
      throw new TreeRefused(`${this.#request.mount.path} cannot be sent to other machines: its file may not be read`);
    return { tree: { rootMode, entries, bytes: this.#bytes }, leftOut: this.#leftOut };
  }
}

/** As in a view: a name that is not UTF-8 has no suffix that could be allowed. */
function isShown(mount: Mount, path: VirtualPath | null, size: number): boolean {
  if (path === null) return mount.suffixes === undefined && mount.maxFileBytes === undefined;
  return checkRead({ mounts: [mount] }, path, { size }) === null;
}

type FileEntry = Extract<TreeEntry, { type: "file" }>;

/** Digests that are asked for at a time. */
const BATCH = 1000;

/** The digest of a tree's manifest, which identifies the whole tree. */
function manifestOf(tree: Tree): Buffer {
  const manifest = formatManifest(tree);
  if (manifest.length > TREE_LIMITS.manifestBytes)
    throw new TreeRefused(`its manifest would have more than ${TREE_LIMITS.manifestBytes} bytes`);
  return manifest;
}

/**
 * Stores what the store lacks of a tree that was read from `mount`, and its manifest last: so a reader of the manifest finds
 * all of it. Returns its digest. Throws `TreeRefused` if a file is no longer what was read.
 */
export async function sendTree(
  tree: Tree,
  { mount, store, signal }: { readonly mount: Mount; readonly store: BlobStore; readonly signal?: AbortSignal },
): Promise<Digest> {
  const manifest = manifestOf(tree);
  using root = pinned(tree.rootMode === null ? dirname(mount.host) : mount.host);
  const files = new Map<Digest, FileEntry>();
  for (const entry of tree.entries) if (entry.type === "file") files.set(entry.digest, entry);
  const digests = [...files.keys()];
  for (let at = 0; at < digests.length; at += BATCH) {
    const batch = digests.slice(at, at + BATCH);
    const there = await store.has(batch);
    const missing = batch.flatMap((digest) => (there.has(digest) ? [] : (files.get(digest) ?? [])));
    await inParallel(missing, async (entry) => {
      if (root === null) throw changed(mount, "");
      await sendFile(root, entry, { mount, store, signal });
    });
  }
  const digest = await putBytes(store, manifest, signal);
  await store.flush();
  return digest;
}

async function sendFile(
  root: Descriptor,
  { path, bytes, digest }: FileEntry,
  { mount, store, signal }: { mount: Mount; store: BlobStore; signal: AbortSignal | undefined },
): Promise<void> {
  if (bytes > store.maxBytes)
    throw new TreeRefused(
      `${mount.path} cannot be sent to other machines: '${shownPath(path)}' has ${bytes} bytes, and the blob store takes at ` +
        `most ${store.maxBytes}. Set CORRAL_BLOBS to a directory that all machines share`,
    );
  if (bytes === 0) return void (await putBytes(store, Buffer.alloc(0), signal));
  try {
    const names = path.split("/").map((name) => Buffer.from(name, "latin1"));
    using folder = root.below(names.slice(0, -1));
    using named = folder.child(names.at(-1) ?? "");
    if (!named.stat().isFile()) throw changed(mount, path);
    using file = named.reopen(fs.constants.O_RDONLY);
    await store.put({ digest, bytes }, piecesOf(file, signal), signal);
  } catch (error) {
    const isGone = ["ENOENT", "ENOTDIR", "ELOOP", "EAGAIN", "EACCES"].includes(codeOf(error) ?? "");
    if (isGone || (error instanceof BlobRefused && error.code === "mismatch")) throw changed(mount, path, error);
    throw error;
  }
}

function changed({ path: at }: Mount, path: string, cause?: unknown): TreeChanged {
  const why = "it changed while it was sent. Try again when no program writes there";
  return new TreeChanged(`${at} cannot be sent to other machines: '${shownPath(path)}': ${why}`, { cause });
}

/** Programs of the project may write to it while it is read. */
const MAX_TRIES = 5;
const PAUSE_MS = 200;

export interface SentMount {
  readonly path: VirtualPath;
  /** Of the manifest. */
  readonly digest: Digest;
  readonly leftOut: readonly UnsentEntry[];
}

/** Reads and stores what each mount shows. Rejects with `TreeRefused`, which names the place, if one of them cannot be sent. */
export async function sendMounts(
  mounts: readonly Mount[],
  { store, signal }: { readonly store: BlobStore; readonly signal: AbortSignal },
): Promise<SentMount[]> {
  const sent: SentMount[] = [];
  for (const mount of mounts) sent.push(await sendMount(mount, mounts, store, signal));
  return sent;
}

async function sendMount(
  mount: Mount,
  mounts: readonly Mount[],
  store: BlobStore,
  signal: AbortSignal,
): Promise<SentMount> {
  for (let tried = 1; ; tried += 1) {
    try {
      const { tree, leftOut } = await readTree({ mount, mounts, signal });
      return { path: mount.path, digest: await sendTree(tree, { mount, store, signal }), leftOut };
    } catch (error) {
      if (!(error instanceof TreeChanged) || tried === MAX_TRIES) throw error;
      await sleep(PAUSE_MS, undefined, { signal });
    }
  }
}
