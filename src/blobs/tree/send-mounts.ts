import { setTimeout as sleep } from "node:timers/promises";
import type { Mount } from "../../sandbox/mount.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { BlobStore, Digest } from "../model/blob.ts";
import { type LeftOut, readTree } from "./read-tree.ts";
import { sendTree } from "./send-tree.ts";
import { TreeChanged } from "./tree.ts";

/** Programs of the project may write to it while it is read. */
const MAX_TRIES = 5;
const PAUSE_MS = 200;

export interface SentMount {
  readonly path: VirtualPath;
  /** Of the manifest. */
  readonly digest: Digest;
  readonly leftOut: readonly LeftOut[];
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
