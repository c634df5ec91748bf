import type { BlobStore, Digest } from "../../blobs/model/blob.ts";
import type { Changeset } from "../../changes/model/changeset.ts";
import { exportChangeset } from "../../changes/wire/export.ts";
import type { Job } from "../../run/model/job.ts";

/** What items changed, stored for their coordinator. */
export class SentChanges {
  readonly #blobs: BlobStore;
  /** By run, until it is taken; as many as run at once. */
  readonly #sent = new Map<string, Digest>();

  constructor(blobs: BlobStore) {
    this.#blobs = blobs;
  }

  async send({ run, signal }: Pick<Job, "run" | "signal">, changeset: Changeset): Promise<void> {
    this.#sent.set(run, await exportChangeset(changeset, this.#blobs, signal));
  }

  /** The list of its changes; null: it has none. */
  take(run: string): Digest | null {
    const digest = this.#sent.get(run) ?? null;
    this.#sent.delete(run);
    return digest;
  }
}
