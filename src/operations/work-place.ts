import { DirectoryBlobs } from "../blobs/directory/directory-blobs.ts";
import type { BlobStore } from "../blobs/model/blob.ts";
import { sendMounts } from "../blobs/tree/send-mounts.ts";
import type { WorkStore } from "../fleet/model/work.ts";
import { openFleetStore } from "../fleet/open-store.ts";
import { settlingDelivered } from "../fleet/settle-delivered.ts";
import type { Transport } from "../fleet/transport.ts";
import { packageVersion } from "./package-version.ts";
import { RequestError } from "./request-error.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Where a machine meets coordinators. */
export interface WorkPlace extends AsyncDisposable {
  readonly work: WorkStore;
  readonly blobs: BlobStore;
}

/** `env`: Corral's own environment. @throws RequestError NO_QUEUE, QueueError */
export async function openWorkPlace(stateDir: string, projectDir: string, env: Env): Promise<WorkPlace> {
  const store = await openFleetStore(stateDir, projectDir, env);
  const { work } = store;
  if (work !== null)
    return { work, blobs: blobsOf(work, env), [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() };
  await store[Symbol.asyncDispose]();
  throw new RequestError("NO_QUEUE", projectDir, NO_QUEUE);
}

/** For a coordinator. */
export function transportBy(work: WorkStore, env: Env): Transport {
  const store = blobsOf(work, env);
  return {
    version: packageVersion(),
    sendTrees: async ({ mounts }, signal) =>
      Object.fromEntries((await sendMounts(mounts, { store, signal })).map(({ path, digest }) => [path, digest])),
    settleChanges: settlingDelivered(store),
  };
}

/** A directory that all machines share, if CORRAL_BLOBS names one; else the queue's database. */
function blobsOf(work: WorkStore, { CORRAL_BLOBS }: Env): BlobStore {
  return CORRAL_BLOBS ? new DirectoryBlobs(CORRAL_BLOBS) : work.blobs;
}

const NO_QUEUE =
  "there is no queue to take items from: write `queue: postgres://user@host/database` into corral.yaml, or set CORRAL_QUEUE";
