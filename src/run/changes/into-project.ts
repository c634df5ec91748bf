import { setTimeout as sleep } from "node:timers/promises";
import { type AuditRecord, changesApplying, changesDiscarded } from "../../audit/records.ts";
import { type AuditTrail, AuditTrailError } from "../../audit/trail.ts";
import { type Changeset, only } from "../../changes/model/changeset.ts";
import { ChangesetBusy, ChangesetStore } from "../../changes/store/changeset-store.ts";
import type { RecordApplied } from "../../changes/store/kept-folder.ts";
import { isOfFailedRun, OF_FAILED_RUN } from "../../changes/store/record.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { treeUsage } from "../../isolation/disk/tree-usage.ts";
import { hasCode, roomAt } from "../../platform/errno.ts";
import { lockOwner } from "../../state/owner.ts";
import { type DecidedChange, type KeptChangesets, UnfinishedChanges } from "../model/result.ts";
import { appliedOf } from "./settle.ts";

/** The store of a state directory, as this process works on it. */
export function changesetStore(stateDir: string): ChangesetStore {
  return new ChangesetStore(stateDir, lockOwner());
}

/** The changes of root runs: applied from the store, and written down before and after, by `record`. */
export function intoProject(
  store: ChangesetStore,
  audit: AuditTrail,
  record: RecordApplied = async (changeset, settled) => await audit.append(appliedOf(changeset, settled)),
): KeptChangesets {
  // They are applied. If this record fails, that of the run's end fails too, and that is reported.
  const recorded: RecordApplied = async (...applied) => void (await isWritten(record(...applied)));
  const failed = new FailedChanges(store, discardWithdrawn);
  return {
    async keep(changeset, outcome, reason, before) {
      await kept(store, changeset, outcome, reason, before);
      await failed.kept(changeset, reason);
    },
    async apply(changeset, indexes, beginning) {
      const changes = changeset.changes.filter(({ index }) => indexes.has(index));
      const held = (reason: string) => changes.map((change): DecidedChange => ({ change, outcome: "held", reason }));
      if (beginning !== undefined) {
        const all = only(changeset, new Set([...indexes, ...beginning.refused]));
        await kept(store, all, "held", null, beginning.confirm);
        await store.flush(changeset, indexes);
        const refused = await beginning.begin();
        if (refused !== null) {
          const { reason, isInherited } = refused;
          if (!isInherited) await discardWithdrawn(changeset.id, reason);
          return held(reason);
        }
      }
      let outcomes: DecidedChange[] | null;
      try {
        // On the disk before the first file is touched; if it cannot be written, nothing is applied and nothing is lost.
        const before = async () => await audit.append(changesApplying(changeset, changes));
        const isKept = beginning !== undefined;
        outcomes = await whenFree(() =>
          unlessBusy(store.apply(changeset, indexes, { isKept, before, record: recorded })),
        );
      } catch (error) {
        if (!(error instanceof AuditTrailError)) throw error;
        if (beginning !== undefined) throw unrecorded(error);
        await kept(store, only(changeset, indexes), "held", UNRECORDED);
        return held(UNRECORDED);
      }
      // The process that completes it records it.
      return outcomes ?? held(FINISHED_ELSEWHERE);
    },
    async withdraw(runs, reason) {
      const left = await store.leftOf(new Set(runs));
      // What a called run had half applied is finished: the project must not stay between two states.
      for (const { id, begun } of left) if (begun) await finished(id);
      const unbegun = left.filter(({ begun }) => !begun).map(({ id }) => id);
      for (const id of new Set([...runs, ...unbegun])) await discardWithdrawn(id, reason);
    },
    drop: discardWithdrawn,
    async finish(run) {
      const done = await finished(run);
      if (done === null || "broken" in done) return done;
      const { changeset, state, waiting } = done;
      const outcomes = new Map(state.changes.map((one) => [one.index, one]));
      return {
        outcomes: changeset.changes.map((change): DecidedChange => {
          const { outcome, reason } = outcomes.get(change.index) ?? { outcome: "held", reason: null };
          return { change, outcome, reason };
        }),
        kept: waiting.size > 0,
      };
    },
    forget: async (run) => await store.ended.forget(run),
  };

  async function finished(id: string) {
    return await completed(id, store, (agreed) => written(changesApplying(agreed, agreed.changes)), recorded);
  }

  /** Nothing is applied unrecorded: the fleet waits until its changes can be recorded. */
  async function written(record: AuditRecord): Promise<void> {
    try {
      await audit.append(record);
    } catch (error) {
      throw error instanceof AuditTrailError ? unrecorded(error) : error;
    }
  }

  async function discardWithdrawn(id: string, reason: string, before?: () => Promise<void>): Promise<void> {
    const kept = await store.load(id);
    // A process that was killed while it kept the changes left a record that cannot be read.
    if (!(await store.drop(id, before)) || !kept.ok) return;
    // It is gone. If this record fails, those of the next attempt fail too, and that is reported.
    const { changes } = only(kept.changeset, kept.waiting);
    await isWritten(audit.append(changesDiscarded(kept.changeset, changes, undefined, reason)));
  }
}

const LOOK_MS = 100;
const MAX_LOOKS = 300;

/** Waits while another process works on the changeset: it may be stopped, and this process have its fleet. */
async function whenFree<T>(act: () => Promise<T | Busy>): Promise<T> {
  for (let look = 0; ; look += 1) {
    const done = await act();
    if (!(done instanceof Busy)) return done;
    if (look >= MAX_LOOKS) throw new UnfinishedChanges(`its changes cannot be settled now: ${done.reason}`);
    await sleep(LOOK_MS);
  }
}

class Busy {
  readonly reason: string;

  constructor(reason: string) {
    this.reason = reason;
  }
}

async function unlessBusy<T>(work: Promise<T>): Promise<T | Busy> {
  return await work.catch((error: unknown) => {
    if (error instanceof ChangesetBusy) return new Busy(error.message);
    throw error;
  });
}

async function kept(store: ChangesetStore, ...changes: Parameters<ChangesetStore["keep"]>): Promise<void> {
  await whenFree(() => unlessBusy(store.keep(...changes)));
}

/** Null: nothing is left of it, so all was applied. */
async function completed(
  run: string,
  store: ChangesetStore,
  before: (agreed: Changeset) => Promise<void>,
  record: RecordApplied,
) {
  return await whenFree(async () => {
    const done = await store.complete(run, before, record);
    if (done.ok) return done;
    if (done.code === "missing") return null;
    return done.code === "busy" ? new Busy(done.reason) : { broken: done.reason };
  });
}

function unrecorded(cause: AuditTrailError): UnfinishedChanges {
  const why = `what an item has begun to change cannot be recorded, so it waits: ${cause.message}`;
  return new UnfinishedChanges(why, { cause });
}

const FINISHED_ELSEWHERE = "another process finishes the run in place of this one";
const UNRECORDED = "it could not be recorded in the audit trail, and nothing is applied unrecorded";

async function isWritten(writing: Promise<void>): Promise<boolean> {
  try {
    await writing;
    return true;
  } catch (error) {
    if (!(error instanceof AuditTrailError)) throw error;
    return false;
  }
}

/** For a project in which nothing runs. */
export const noChangesets: KeptChangesets = {
  keep: async () => {},
  apply: async () => [],
  withdraw: async () => {},
  drop: async () => {},
  finish: async () => null,
  forget: async () => {},
};

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
