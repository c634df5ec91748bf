import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { type BlobStore, isDigest } from "../blobs/blob.ts";
import { openDirectoryBlobs } from "../blobs/directory-blobs.ts";
import { Mirrors } from "../blobs/mirrors.ts";
import { sendMounts } from "../blobs/send-mounts.ts";
import { CELL_USER, isLending } from "../changes/view/lending.ts";
import { keptBlobs } from "../changes/wire/document.ts";
import { packageVersion } from "../declarations/place/package-root.ts";
import type { Project } from "../declarations/project.ts";
import { openFleetStore } from "../fleet/fleet-stores.ts";
import { QueueError } from "../fleet/model/queue.ts";
import type { WorkStore } from "../fleet/model/work.ts";
import { settlingDelivered } from "../fleet/running/begun-effects.ts";
import { capacityOf, type Transport } from "../fleet/running/fleet-parts.ts";
import { AskingCoordinator, whenThere } from "../fleet/work/asking-coordinator.ts";
import { hostFleets } from "../fleet/work/host-fleet.ts";
import type { OnWorkEvent } from "../fleet/work/hosted-fleets.ts";
import { WorkingMachine } from "../fleet/work/working-machine.ts";
import type { Corral } from "../run/open/corral.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { lockOwner } from "../state/owner.ts";
import { statePaths } from "../state/state-paths.ts";
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

export interface WorkRequest {
  /** For people. */
  readonly name: string;
  readonly labels: readonly string[];
  readonly slots: number | "auto";
  /** Environment variables, for the queue and the blobs. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly onEvent: OnWorkEvent;
  /** The approver of this machine's runs, see {@link coordinatorsOf}. */
  readonly questions: AskingCoordinator;
  /** Claims no more, gives back waiting items, and ends when the running ones have ended. */
  readonly drain: AbortSignal;
  /** Ends everything at once. */
  readonly stop: AbortSignal;
}

/** Asks the coordinators what items need approval for and no rule of the project decides. */
export function coordinatorsOf({ approval }: Pick<Project, "approval">): AskingCoordinator {
  return new AskingCoordinator({ timeoutMs: approval.timeoutMs, pause });
}

/** Between two attempts to join after the lease was lost. */
const REJOIN_MS = 1000;

/**
 * Makes this process a machine that runs items of other processes' fleets, as far as they agree with this project, until it is drained or
 * stopped. If its lease ends, because it stood still or did not reach the queue, everything that it ran is ended, and it joins again.
 * It waits as long as the queue does not answer.
 *
 * @throws RequestError NO_QUEUE, QueueError for a queue that refuses
 */
export async function workOn(corral: Corral, request: WorkRequest): Promise<void> {
  const { environment: run, project, stateDir } = corral;
  const { name, labels, onEvent, questions, drain, stop } = request;
  const isOver = (): boolean => drain.aborted || stop.aborted;
  const over = AbortSignal.any([drain, stop]);
  const patience = {
    over,
    isPassing: (error: unknown) => error instanceof QueueError && error.isPassing,
    onAway: (why: string) => onEvent({ type: "waiting", for: "queue", why }),
    pause: (ms: number) => pause(ms, undefined, { signal: over }).catch(() => {}),
  };
  await using place = await whenThere(() => openWorkPlace(stateDir, project.dir, request.env), patience);
  if (place === null) return;
  const mirrorsDir = statePaths(stateDir).mirrors;
  const own = new Mirrors({ dir: join(mirrorsDir, "own"), owner: lockOwner() });
  const lent = new Mirrors({ dir: join(mirrorsDir, "lent"), owner: lockOwner(), user: CELL_USER });
  for (const mirrors of [own, lent]) await mirrors.sweep();
  const version = packageVersion();
  // Cells get what belongs to root as a copy for each item: of a directory with thousands of outputs, that takes seconds.
  const mirrorsFor = (sandbox: Sandbox): Mirrors => (isLending(sandbox) ? lent : own);
  const slots = request.slots === "auto" ? await automaticSlots(corral) : request.slots;
  const host = hostFleets({ run, version, blobs: place.blobs, mirrorsFor, mirrorsDir, slots, questions });
  for (let isFirst = true; !isOver(); isFirst = false) {
    const machine = { name, labels, slots, version };
    // Later the queue may be away for any reason and any time: the configuration of this machine has proved right.
    const joining = isFirst ? patience : { ...patience, isPassing: () => true };
    const membership = await whenThere(() => place.work.join(machine), joining);
    if (membership === null) return;
    using _ = questions.through({ membership, store: place.work });
    onEvent({ type: "joined", name, slots, labels });
    const parts = {
      membership,
      store: place.work,
      slots,
      host,
      onEvent,
      now: run.now,
      pause: (ms: number) => pause(ms),
    };
    const end = await new WorkingMachine({ ...parts, drain, stop }).run();
    await membership[Symbol.asyncDispose]();
    if (end !== "lost") return;
    await patience.pause(REJOIN_MS);
  }
}

/** As many as a fleet of fresh cells alone would run here. */
async function automaticSlots({ environment, project }: Corral): Promise<number> {
  const { defaultLimits } = await environment.policyNamed(project.policyName);
  return Math.max(1, capacityOf("fresh", defaultLimits.memoryBytes));
}
