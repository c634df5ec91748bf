import { DirectoryBlobs } from "../blobs/directory/directory-blobs.ts";
import type { BlobStore } from "../blobs/model/blob.ts";
import { PostgresBlobs } from "../blobs/postgres/postgres-blobs.ts";
import { sendMounts } from "../blobs/tree/send-mounts.ts";
import { queueOf } from "../declarations/queue.ts";
import type { WorkStore } from "../fleet/model/work.ts";
import { openQueue } from "../fleet/postgres/open-queue.ts";
import { connectServer } from "../fleet/postgres/server.ts";
import { settlingDelivered } from "../fleet/settle-delivered.ts";
import type { Transport } from "../fleet/transport.ts";
import { packageVersion } from "./package-version.ts";
import { RequestError } from "./request-error.ts";

type Env = Readonly<Record<string, string | undefined>>;

/** Where machines and coordinators meet. */
export interface WorkPlace extends AsyncDisposable {
  readonly work: WorkStore;
  readonly blobs: BlobStore;
}

/** For a machine. @throws RequestError NO_QUEUE, QueueError */
export async function openWorkPlace({ dir }: { readonly dir: string }, env: Env): Promise<WorkPlace> {
  const url = await queueOf(dir, env);
  if (url === null) throw new RequestError("NO_QUEUE", dir, NO_QUEUE);
  // Opening it makes its tables, those of the blobs among them.
  const store = await openQueue(url, dir);
  try {
    const blobs = await openBlobs(url, env);
    return {
      work: store.work,
      blobs: blobs.store,
      async [Symbol.asyncDispose]() {
        await blobs[Symbol.asyncDispose]();
        await store[Symbol.asyncDispose]();
      },
    };
  } catch (error) {
    await store[Symbol.asyncDispose]();
    throw error;
  }
}

/** For a coordinator; null: there is no queue. @throws QueueError */
export async function openTransport(projectDir: string, env: Env): Promise<(Transport & AsyncDisposable) | null> {
  const url = await queueOf(projectDir, env);
  if (url === null) return null;
  const blobs = await openBlobs(url, env);
  const { store } = blobs;
  return {
    version: packageVersion(),
    sendTrees: async ({ mounts }, signal) =>
      Object.fromEntries((await sendMounts(mounts, { store, signal })).map(({ path, digest }) => [path, digest])),
    settleChanges: settlingDelivered(store),
    [Symbol.asyncDispose]: () => blobs[Symbol.asyncDispose](),
  };
}

/** A directory that all machines share, if CORRAL_BLOBS names one; else the queue's database. */
async function openBlobs(
  url: string,
  { CORRAL_BLOBS }: Env,
): Promise<{ readonly store: BlobStore } & AsyncDisposable> {
  if (CORRAL_BLOBS) return { store: new DirectoryBlobs(CORRAL_BLOBS), [Symbol.asyncDispose]: async () => {} };
  const database = await connectServer(url);
  return { store: new PostgresBlobs(database), [Symbol.asyncDispose]: () => database[Symbol.asyncDispose]() };
}

const NO_QUEUE =
  "there is no queue to take items from: write `queue: postgres://user@host/database` into corral.yaml, or set CORRAL_QUEUE";
