import type { Changeset } from "../../changes/model/changeset.ts";
import type { ChangesetStore } from "../../changes/store/changeset-store.ts";
import { isOfFailedRun, OF_FAILED_RUN } from "../../changes/store/record.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { treeUsage } from "../../isolation/disk/tree-usage.ts";
import { hasCode } from "../../platform/errno.ts";
import { roomAt } from "../../platform/full-disk.ts";

/** Of one project. Of a small disk it is a quarter of the room. */
const MAX_KEPT_BYTES = 1024 ** 3;
const ROOM_PART = 1 / 4;
/** After so many bytes more it is looked again. */
const LOOK_BYTES = 64 * 1024 ** 2;
const MEASURE_MS = 10_000;

interface KeptFailure {
  readonly id: string;
  readonly bytes: number;
}

/** Keeps what failed runs wrote within a bound: an hour of failures fills no disk. The oldest goes first. */
export class FailedChanges {
  readonly #store: ChangesetStore;
  readonly #discard: (id: string, reason: string) => Promise<void>;
  readonly #maxBytes: number;
  /** Null: it was never looked. */
  #sinceBytes: number | null = null;
  #isLooking = false;

  constructor(
    store: ChangesetStore,
    discard: (id: string, reason: string) => Promise<void>,
    maxBytes: number = MAX_KEPT_BYTES,
  ) {
    this.#store = store;
    this.#discard = discard;
    this.#maxBytes = maxBytes;
  }

  /** A changeset is kept, for this reason. */
  async kept(changeset: Changeset, reason: string): Promise<void> {
    if (!reason.startsWith(OF_FAILED_RUN) || this.#isLooking) return;
    const bytes = changeset.changes.reduce((sum, { next }) => sum + (next?.size ?? 0), 0);
    const since = this.#sinceBytes === null ? null : this.#sinceBytes + bytes;
    this.#sinceBytes = since;
    if (since !== null && since < Math.min(LOOK_BYTES, this.#maxBytes / 4)) return;
    this.#isLooking = true;
    try {
      await this.#bound(changeset);
      this.#sinceBytes = 0;
    } finally {
      this.#isLooking = false;
    }
  }

  async #bound({ id: newest, project }: Changeset): Promise<void> {
    const signal = AbortSignal.timeout(MEASURE_MS);
    const failures: KeptFailure[] = [];
    for (const one of await this.#store.list())
      if (one.ok && !one.applying && one.state.project === project && isOfFailedRun(one.state))
        failures.push({ id: one.id, bytes: await bytesBelow(this.#store.dirOf(one.id), signal) });
    let total = failures.reduce((sum, { bytes }) => sum + bytes, 0);
    const free = roomAt(this.#store.dirOf(newest))?.freeBytes ?? this.#maxBytes;
    const most = Math.min(this.#maxBytes, (free + total) * ROOM_PART);
    for (const { id, bytes } of failures) {
      if (total <= most || id === newest) break;
      await this.#discard(id, `what runs that failed wrote has a bound, and this was the oldest`);
      total -= bytes;
    }
  }
}

async function bytesBelow(dir: string, signal: AbortSignal): Promise<number> {
  try {
    using folder = Descriptor.name(dir);
    return (await treeUsage(folder, Number.POSITIVE_INFINITY, signal)).bytes;
  } catch (error) {
    // Another process has removed it, or it takes too long.
    if (signal.aborted || hasCode(error, "ENOENT")) return 0;
    throw error;
  }
}
