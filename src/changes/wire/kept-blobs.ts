import { BlobRefused, type BlobStore, type Digest, wholeBlob } from "../../blobs/blob.ts";
import { parseManifest, TREE_LIMITS, TreeRefused } from "../../blobs/manifest.ts";
import { MAX_DOCUMENT_BYTES, parseWire, WireRefused } from "./document.ts";

/** What fleets that have not ended refer to. */
export interface BlobRoots {
  /** Manifests of directories. */
  readonly trees: Iterable<Digest>;
  /** Lists of changes that were delivered and not settled. */
  readonly changesets: Iterable<Digest>;
  /** Single files, such as attachments of items. */
  readonly files?: Iterable<Digest>;
}

/** More are not swept: all digests are in memory. */
const MAX_KEPT = 20_000_000;

/**
 * Every blob that these refer to, themselves included: for `BlobStore.sweep`. What is missing or not valid refers to nothing. A store
 * that cannot be read rejects, so that nothing is swept by mistake.
 */
export async function keptBlobs(
  store: BlobStore,
  { trees, changesets, files = [] }: BlobRoots,
  signal?: AbortSignal,
): Promise<ReadonlySet<Digest>> {
  const kept = new Set<Digest>(files);
  if (kept.size > MAX_KEPT) throw new Error(`fleets refer to more than ${MAX_KEPT} blobs`);
  const followed = new Set<Digest>();
  const follow = async (root: Digest, maxBytes: number, read: (content: Buffer) => Iterable<Digest>): Promise<void> => {
    // A list may also be the content of a file.
    if (followed.has(root)) return;
    followed.add(root);
    kept.add(root);
    try {
      for (const digest of read(await wholeBlob(store, root, maxBytes, signal))) kept.add(digest);
    } catch (error) {
      const isUseless = error instanceof BlobRefused || error instanceof TreeRefused || error instanceof WireRefused;
      if (!isUseless) throw error;
    }
    if (kept.size > MAX_KEPT) throw new Error(`fleets refer to more than ${MAX_KEPT} blobs`);
  };
  for (const root of trees) await follow(root, TREE_LIMITS.manifestBytes, inTree);
  for (const root of changesets) await follow(root, MAX_DOCUMENT_BYTES, inChanges);
  return kept;
}

function* inTree(manifest: Buffer): Generator<Digest> {
  for (const entry of parseManifest(manifest).entries) if (entry.type === "file") yield entry.digest;
}

function* inChanges(document: Buffer): Generator<Digest> {
  for (const { changes } of parseWire(document).mounts)
    for (const { next } of changes) if (next?.digest != null) yield next.digest;
}
