import type { Mirror, Mirrors } from "../../blobs/mirror/mirrors.ts";
import { type BlobStore, isDigest } from "../../blobs/model/blob.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Agreement } from "../model/work.ts";

/** What a fleet's items read on this machine. Disposing lets the mirrors go. */
export interface Mirrored extends AsyncDisposable {
  /** With mirrors in the place of all directories; whatever is writable is staged. */
  readonly sandbox: Sandbox;
}

/** Brings the directories of a fleet here. @throws BlobRefused, TreeRefused, or an error for people */
export async function mirrored(
  sandbox: Sandbox,
  trees: Agreement["trees"],
  { mirrors, blobs, signal }: { readonly mirrors: Mirrors; readonly blobs: BlobStore; readonly signal: AbortSignal },
): Promise<Mirrored> {
  const opened: Mirror[] = [];
  const close = async (): Promise<void> => {
    for (const mirror of opened) await mirror[Symbol.asyncDispose]();
  };
  try {
    const mounts: Mount[] = [];
    for (const mount of sandbox.mounts) {
      const digest = trees[mount.path];
      if (digest === undefined || !isDigest(digest)) throw new Error(`its coordinator does not offer ${mount.path}`);
      const mirror = await mirrors.open(digest, blobs, signal);
      opened.push(mirror);
      mounts.push(stagedAt(mount, mirror.path));
    }
    return { sandbox: { ...sandbox, mounts }, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** What is written leaves this machine as a changeset alone, whatever it is at home. */
function stagedAt({ view: _, ...mount }: Mount, host: string): Mount {
  return mount.mode === "ro" || mount.discard ? { ...mount, host } : { ...mount, host, stage: true };
}

/**
 * The worker as one that inherits its files: the sandbox that it is run under is its own already. Everything else that it needs is
 * derived again.
 */
export function inheriting(worker: WorkerDefinition): WorkerDefinition {
  const { zones: _, paths: __, allowRead: ___, allowWrite: ____, ...needs } = worker.needs;
  return { ...worker, needs: { ...needs, inherit: true } };
}
