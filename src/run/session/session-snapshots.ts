import { ROOT_VIEW } from "../../changes/layers/layered-view.ts";
import {
  NoSnapshot,
  releaseLayers,
  type SnapshotRecord,
  type SnapshotStore,
} from "../../changes/layers/snapshot-store.ts";
import type { Stage } from "../../changes/stage.ts";
import { CannotStage } from "../../changes/view/base-tree.ts";
import type { FrozenView } from "../../changes/view/view.ts";
import { nameFault } from "../../declarations/terms/names.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { Declared } from "../model/environment.ts";
import type { Job } from "../model/job.ts";
import { permissionOf } from "../model/permission.ts";
import { describeAll, refusalError } from "../model/result.ts";

/** Last snapshots of a project that are kept: a service may end sessions all day. */
const MAX_LAST = 100;

/** What a snapshot says of the session that it is of. */
export interface SnapshotOrigin {
  readonly store: SnapshotStore;
  /** What the session is called; null: it has only its id. */
  readonly session: string | null;
  /** The policy that the user chose; null: the worker's. */
  readonly policy: string | null;
  /** As it was derived, without its views. */
  readonly sandbox: Sandbox;
}

export interface SnapshotParts extends SnapshotOrigin {
  readonly job: Job;
  readonly stage: Stage;
  readonly env: Declared & { readonly ownerDir: string };
  /** Ends what runs in the session, and acts while nothing can write. */
  readonly still: <T>(act: () => Promise<T>) => Promise<T>;
}

/** What clients see of a snapshot. */
export interface SessionSnapshot {
  readonly id: string;
  readonly name: string | null;
  readonly worker: string;
  /** The session that it was made of: its id, and what it was called. */
  readonly session: string;
  readonly sessionName: string | null;
  readonly createdAt: string;
  /** Made at the end of its session, which can go on from it. */
  readonly isLast: boolean;
  /** The directories that are in it, and those that were written directly and are not. */
  readonly has: readonly string[];
  readonly lacks: readonly string[];
}

/** One difference between a session and a snapshot. */
export interface SnapshotDifference {
  readonly path: VirtualPath;
  readonly kind: "create" | "modify" | "delete";
  readonly type: "file" | "directory" | "link" | "other";
  /** Of what the session has; null for a deletion. */
  readonly bytes: number | null;
}

/** Takes snapshots of one session, and goes back to them. Each method throws ToolRefusal. */
export class SessionSnapshots {
  readonly #parts: SnapshotParts;

  constructor(parts: SnapshotParts) {
    this.#parts = parts;
  }

  async take(name: string | null): Promise<SessionSnapshot> {
    return shownSnapshot(await this.#taken({ name, isLast: false }));
  }

  /** Of a session that ends, and can go on from it. It takes the place of an earlier one of the same session. */
  async takeLast(): Promise<boolean> {
    const { stage, store, session } = this.#parts;
    if (stage.writable.staged.length === 0) return false;
    const { id } = await this.#taken({ name: null, isLast: true });
    const isEarlier = (one: SnapshotRecord): boolean => one.session === session && session !== null;
    const all = (await store.list()).filter((one) => one.isLast && one.name === null && one.id !== id);
    const old = new Set(all.slice(0, Math.max(0, all.length - MAX_LAST)).map((one) => one.id));
    await store.remove((one) => one.isLast && one.id !== id && (isEarlier(one) || old.has(one.id)));
    return true;
  }

  async #taken({ name, isLast }: Pick<SnapshotRecord, "name" | "isLast">): Promise<SnapshotRecord> {
    const { job, stage, store, session, policy, sandbox, env, still } = this.#parts;
    const { staged, direct } = stage.writable;
    if (staged.length === 0) throw new ToolRefusal("NOTHING_TO_SNAPSHOT", nothingIn(direct));
    const fault = name === null ? null : nameFault(name);
    if (fault !== null) throw new ToolRefusal("BAD_NAME", `The name of a snapshot ${fault}.`);
    const from = { run: job.run, session, worker: job.worker.name, policy };
    return await refusing(async () => {
      await store.refuseTaken(name);
      return await still(async () => {
        const views = await stage.freeze(() => store.newLayer(env.ownerDir, job.run));
        return await store.add({ name, isLast, ...from, direct: [...direct], sandbox }, views);
      });
    });
  }

  /** Shows what the snapshot has, in place of all that was written since. */
  async restore(wanted: string): Promise<SessionSnapshot> {
    const { job, stage, store, env, still } = this.#parts;
    return await refusing(async () => {
      const { record, views } = await store.open(wanted, env.ownerDir, job.run);
      refuseUnlessWithin(await beyondSnapshot(record, job.worker, env));
      refuseUnlessWithin(await still(() => stage.restore(views)));
      return shownSnapshot(record);
    });
  }

  /** What the session has that the snapshot has not, and the other way round. */
  async differences(wanted: string, signal: AbortSignal): Promise<readonly SnapshotDifference[]> {
    const { job, stage, store, env } = this.#parts;
    return await refusing(async () => {
      const { record, views } = await store.open(wanted, env.ownerDir, job.run);
      refuseUnlessWithin(await beyondSnapshot(record, job.worker, env));
      const drafts = await stage.differences(views, signal);
      return drafts.map(({ path, kind, type, next }) => ({ path, kind, type, bytes: next?.size ?? null }));
    });
  }

  /** Those of its worker, the oldest first. */
  async list(): Promise<readonly SessionSnapshot[]> {
    const { job, store } = this.#parts;
    return (await store.list()).filter(({ worker }) => worker === job.worker.name).map(shownSnapshot);
  }

  /** What began from it stays. */
  async remove(wanted: string): Promise<SessionSnapshot> {
    const { job, store } = this.#parts;
    return await refusing(async () => {
      const found = await store.find(wanted);
      refuseOther(found, job.worker);
      await store.remove(({ id }) => id === found.id);
      return shownSnapshot(found);
    });
  }
}

export function shownSnapshot(record: SnapshotRecord): SessionSnapshot {
  const { id, name, worker, run, session, createdAt, isLast, mounts, direct } = record;
  const has = mounts.map(({ path }) => (path === ROOT_VIEW ? "root file system" : path));
  return { id, name, worker, session: run, sessionName: session, createdAt, isLast, has, lacks: direct };
}

/** At the end of a session: what has no name goes with it, but for its last one. `gone`: also this one. */
export async function forgetSnapshots(
  store: SnapshotStore | undefined,
  { ownerDir, run, gone }: { readonly ownerDir: string; readonly run: string; readonly gone: string | null },
): Promise<void> {
  if (!(await releaseLayers(ownerDir, run))) return;
  await store?.remove(({ id, name, isLast, run: of }) => name === null && ((of === run && !isLast) || id === gone));
}

/** Its files, and what its session was allowed. @throws ToolRefusal */
export async function openedSnapshot(
  store: SnapshotStore | undefined,
  wanted: string,
  worker: Job["worker"],
  { ownerDir, run }: { readonly ownerDir: string; readonly run: string },
): Promise<{ readonly record: SnapshotRecord; readonly views: readonly FrozenView[] }> {
  if (store === undefined) throw new ToolRefusal("UNKNOWN_SNAPSHOT", "Snapshots are not kept here.");
  const opened = await refusing(() => store.open(wanted, ownerDir, run));
  refuseOther(opened.record, worker);
  return opened;
}

function refuseOther({ id, worker: of }: Pick<SnapshotRecord, "id" | "worker">, worker: Job["worker"]): void {
  if (of !== worker.name)
    throw new ToolRefusal(
      "SNAPSHOT_OF_ANOTHER",
      `The snapshot ${id} is of the worker ${of}, and not of ${worker.name}.`,
    );
}

/**
 * Why a session of this worker may not go on from a snapshot; none if it may. It holds as for a call: what the worker declares now has to be
 * within what the session had.
 */
export async function beyondSnapshot(
  record: Pick<SnapshotRecord, "worker" | "sandbox" | "id">,
  worker: Job["worker"],
  env: Declared,
): Promise<readonly Violation[]> {
  refuseOther(record, worker);
  const had = record.sandbox as Sandbox;
  // What single commands could be granted, its own commands could be granted again.
  const caller = { ...had, network: had.commandNetwork ?? had.network };
  const derivation = await permissionOf(worker, caller, null, env);
  return derivation.ok ? [] : derivation.violations;
}

function nothingIn(direct: readonly VirtualPath[]): string {
  const what = direct.length === 0 ? "it writes no directory" : `it writes ${direct.join(", ")} directly`;
  return `A snapshot has what a session wrote in staged directories, and there is none: ${what}. Declare \`stage: true\` for a directory.`;
}

function refuseUnlessWithin(violations: readonly Violation[]): void {
  if (violations.length === 0) return;
  const described = describeAll(violations);
  const { code, message } = refusalError(described);
  throw new ToolRefusal(code, message, { violations: described });
}

async function refusing<T>(act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof NoSnapshot)
      throw new ToolRefusal(error.code, `${error.message[0]?.toUpperCase()}${error.message.slice(1)}.`);
    if (error instanceof CannotStage)
      throw new ToolRefusal("SNAPSHOT_REFUSED", `No snapshot was taken: ${error.message}.`);
    throw error;
  }
}
