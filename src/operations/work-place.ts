import { type BlobStore, isDigest } from "../blobs/blob.ts";
import { openDirectoryBlobs } from "../blobs/directory-blobs.ts";
import { sendMounts } from "../blobs/send-mounts.ts";
import { keptBlobs } from "../changes/wire/document.ts";
import { packageVersion } from "../declarations/place/package-root.ts";
import { openFleetStore } from "../fleet/fleet-stores.ts";
import type { WorkStore } from "../fleet/model/work.ts";
import type { Transport } from "../fleet/running/fleet-parts.ts";
import { settlingDelivered } from "../fleet/running/settle-delivered.ts";
import { RequestError } from "./request-error.ts";

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

type Env = Readonly<Record<string, string | undefined>>;

/** Where a machine meets coordinators. */
export interface WorkPlace extends AsyncDisposable {
  readonly work: WorkStore;
  readonly blobs: BlobStore;
}

/** `env`: Corral's own environment. @throws RequestError NO_QUEUE, QueueError */
export async function openWorkPlace(stateDir: string, projectDir: string, env: Env): Promise<WorkPlace> {
  const store = await openFleetStore(stateDir, projectDir, env);
  const close = async (): Promise<void> => await store[Symbol.asyncDispose]();
  try {
    const { work } = store;
    if (work === null) throw new RequestError("NO_QUEUE", projectDir, NO_QUEUE);
    return { work, blobs: await blobsOf(work, env), [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** For a coordinator. */
export async function transportBy(work: WorkStore, env: Env): Promise<Transport> {
  const store = await blobsOf(work, env);
  return {
    version: packageVersion(),
    blobs: store,
    async sendTrees({ mounts }, signal) {
      await sweepBlobs(work, store, signal);
      const sent = await sendMounts(mounts, { store, signal });
      return Object.fromEntries(sent.map(({ path, digest }) => [path, digest]));
    },
    settleChanges: settlingDelivered(store),
  };
}

/** A directory that all machines share, if CORRAL_BLOBS names one; else the queue's database. */
async function blobsOf(work: WorkStore, { CORRAL_BLOBS }: Env): Promise<BlobStore> {
  return CORRAL_BLOBS ? await openDirectoryBlobs(CORRAL_BLOBS) : await work.blobs();
}

const NO_QUEUE =
  "there is no queue to take items from: write `queue: postgres://user@host/database` into corral.yaml, or set CORRAL_QUEUE";
