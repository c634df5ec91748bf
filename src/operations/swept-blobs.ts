import { type BlobStore, isDigest } from "../blobs/blob.ts";
import { keptBlobs } from "../changes/wire/kept-blobs.ts";
import type { WorkStore } from "../fleet/model/work.ts";

/** What refers to a blob may still be on its way, and a machine may rely on what it found. */
const OLDER_THAN_MS = 24 * 60 * 60_000;

/** Removes blobs to which no fleet refers. A failure is no reason to run no fleet: the next coordinator tries again. */
export async function sweepBlobs(
  work: Pick<WorkStore, "referred">,
  store: BlobStore,
  signal: AbortSignal,
): Promise<void> {
  try {
    const { trees, changesets, files } = await work.referred();
    const roots = {
      trees: trees.filter(isDigest),
      changesets: changesets.filter(isDigest),
      files: files.filter(isDigest),
    };
    const kept = await keptBlobs(store, roots, signal);
    await store.sweep({ isKept: (digest) => kept.has(digest), olderThanMs: OLDER_THAN_MS, signal });
  } catch {
    signal.throwIfAborted();
  }
}
