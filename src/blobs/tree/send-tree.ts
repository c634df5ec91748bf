import fs from "node:fs";
import { dirname } from "node:path";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { pinned } from "../../files/host/roots.ts";
import { codeOf } from "../../platform/errno.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { BlobRefused, type BlobStore, type Digest, putBytes } from "../model/blob.ts";
import { piecesOf } from "../model/file-content.ts";
import { inParallel } from "../model/in-parallel.ts";
import { formatManifest } from "./manifest.ts";
import { shownPath, TREE_LIMITS, type Tree, TreeChanged, type TreeEntry, TreeRefused } from "./tree.ts";

type FileEntry = Extract<TreeEntry, { type: "file" }>;

/** Digests that are asked for at a time. */
const BATCH = 1000;

/** The digest of a tree's manifest, which identifies the whole tree. */
export function manifestOf(tree: Tree): Buffer {
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
