import { availableParallelism, freemem } from "node:os";
import { dirname } from "node:path";
import PQueue from "p-queue";
import type { BlobStore } from "../../blobs/blob.ts";
import { isOnlyForSessions, type WorkerDefinition } from "../../declarations/worker/worker.ts";
import { attachedFile } from "../../run/attached-file.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import type { Emit } from "../../run/model/events.ts";
import { newRunId } from "../../run/model/job.ts";
import { permissionOf, rootSandbox } from "../../run/model/permission.ts";
import { describeAll } from "../../run/model/result.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { announceFleet, countLiveFleets } from "../../state/live-dir.ts";
import { currentOwner, type Owner } from "../../state/owner.ts";
import { formatDuration } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import type { FleetCache } from "../cache/fleet-cache.ts";
import { begunItems, type FleetJob, itemJob, readByAll } from "../items/item-job.ts";
import { checkPaths, type TemplatePath } from "../items/item-template.ts";
import { type Collisions, collisionsIn } from "../items/path-template.ts";
import { throwawayStore } from "../journal/journal.ts";
import type { FleetSpec, ItemRequest, ItemResult, Reuse } from "../model/item.ts";
import type { FleetQueue, IntendedSettlement, Settlement } from "../model/queue.ts";
import type { ApplyingItem, FleetStore, LoadProblem } from "../model/store.ts";
import type { Agreement, Delivered, WorkStore } from "../model/work.ts";
import type { OnFleetEvent } from "./events.ts";
import { LOOKED_AT, refusedAlike } from "./first-items.ts";
import type { ItemExecutor } from "./item-result.ts";
import type { OwnedQueue } from "./owned-queue.ts";

/** Runs whose troubles are kept until they are taken; the oldest are dropped first. */
const MAX_RUNS = 1000;
/** Texts for each run, and characters of each text. */
const MAX_TEXTS = 3;
const MAX_CHARS = 500;

/**
 * Troubles that runs reported to the user. A RunResult contains only what workers may read, such as "the Engine failed"; a
 * fleet's results add the details.
 */
export class RunTroubles {
  readonly #byRoot = new Map<string, Set<string>>();

  /** The environment, with an `emit` that also collects troubles. */
  listeningIn(env: RunEnvironment): RunEnvironment {
    const emit: Emit = (event) => {
      if (event.type === "trouble") this.add(event.root, event.detail);
      env.emit(event);
    };
    return { ...env, emit };
  }

  add(root: string, detail: string): void {
    const told = this.#byRoot.get(root) ?? new Set();
    this.#byRoot.set(root, told);
    if (told.size < MAX_TEXTS) told.add(detail.slice(0, MAX_CHARS));
    if (this.#byRoot.size > MAX_RUNS) this.#byRoot.delete(this.#byRoot.keys().next().value ?? root);
  }

  /** Returns and forgets the troubles of the tree of runs with this root, without repetitions. */
  take(root: string): readonly string[] {
    const told = this.#byRoot.get(root);
    this.#byRoot.delete(root);
    return [...(told ?? [])];
  }
}

/**
 * Limits how many items run at once. More items than that are prepared: their verified cells wait at the gate, and the items
 * wait here.
 */
export class Semaphore {
  readonly #queue: PQueue;

  constructor(concurrency: number) {
    this.#queue = new PQueue({ concurrency });
  }

  /** Does not affect items that already run. */
  set concurrency(concurrency: number) {
    this.#queue.concurrency = concurrency;
  }

  /** While it is held, no place is given, also if one is free. */
  set isHeld(isHeld: boolean) {
    if (isHeld) this.#queue.pause();
    else this.#queue.start();
  }

  /** Waits for a place and returns the function that releases it. Rejects with the signal's reason if it is aborted first. */
  async acquire(signal: AbortSignal): Promise<() => void> {
    signal.throwIfAborted();
    const { promise: over, resolve: end } = Promise.withResolvers<void>();
    const { promise: begun, resolve: begin, reject } = Promise.withResolvers<void>();
    const onAbort = (): void => {
      // Its place in the queue is released as soon as it comes up.
      end();
      reject(signal.reason);
    };
    signal.addEventListener("abort", onAbort, { once: true });
    void this.#queue.add(async () => {
      begin();
      await over;
    });
    await begun;
    signal.removeEventListener("abort", onAbort);
    return end;
  }
}

/**
 * A fleet's share of the machine. All fleets under one state directory have equal shares, whichever project and process they
 * belong to; a share changes when other fleets start or end.
 */
export class MachineShare implements AsyncDisposable {
  readonly #spec: FleetSpec;
  readonly #liveDir: string;
  readonly #self: Owner = currentOwner();
  readonly #capacity: number;
  readonly #announced: AsyncDisposable;
  #concurrency: Concurrency;

  private constructor(spec: FleetSpec, liveDir: string, memoryBytes: number, announced: AsyncDisposable) {
    this.#spec = spec;
    this.#liveDir = liveDir;
    this.#capacity = capacityOf(spec.reuse, memoryBytes);
    this.#announced = announced;
    this.#concurrency = concurrencyBeside(spec, this.#capacity, 1);
  }

  /** `memoryBytes`: the limit of each item. Disposing returns the share to the other fleets. */
  static async take(id: string, spec: FleetSpec, ownerDir: string, memoryBytes: number): Promise<MachineShare> {
    const announced = await announceFleet(ownerDir, id);
    const share = new MachineShare(spec, dirname(ownerDir), memoryBytes, announced);
    await share.look();
    return share;
  }

  /** As of the last `look`. */
  get concurrency(): Concurrency {
    return this.#concurrency;
  }

  async look(): Promise<Concurrency> {
    const fleets = await countLiveFleets(this.#liveDir, this.#self);
    this.#concurrency = concurrencyBeside(this.#spec, this.#capacity, fleets);
    return this.#concurrency;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#announced[Symbol.asyncDispose]();
  }
}

export interface Concurrency {
  /** Items that run at the same time. */
  readonly running: number;
  /** Additional cells that are prepared and wait at the gate. */
  readonly warm: number;
}

/** The part of the free memory that fleets may use; the rest is for other programs. */
const MEMORY_PART = 0.7;
const MAX_AUTO = 64;
const MAX_WARM = 4;

/** How many items one fleet alone may run at once, by processors and free memory. */
export function capacityOf(reuse: Reuse, memoryBytes: number): number {
  const cores = availableParallelism();
  const byMemory = Math.floor((freemem() * MEMORY_PART) / memoryBytes);
  // A fresh cell mostly waits for the Engine, a scrubbed one for a processor.
  const byCores = reuse === "fresh" ? 2 * cores : cores + 1;
  return Math.min(byCores, byMemory, MAX_AUTO);
}

/** How many items a fleet runs beside others: `auto` takes an equal share, a number is used as it is. */
export function concurrencyBeside(
  { concurrency, reuse }: Pick<FleetSpec, "concurrency" | "reuse">,
  capacity: number,
  fleets: number,
): Concurrency {
  const running = concurrency === "auto" ? Math.max(1, Math.floor(capacity / Math.max(1, fleets))) : concurrency;
  return { running, warm: reuse === "fresh" ? Math.min(MAX_WARM, running) : 0 };
}

/** What a fleet needs to run. */
export interface FleetParts {
  readonly id: string;
  readonly spec: FleetSpec;
  readonly job: FleetJob;
  readonly store: FleetStore;
  /** Of the same fleet. */
  readonly queue: FleetQueue;
  /** Null: no earlier result is used, and no result counts for another fleet. */
  readonly cache: FleetCache | null;
  /** Items whose effects an earlier process had begun: they are finished first. */
  readonly applying?: readonly ApplyingItem[];
  readonly executor: ItemExecutor;
  readonly troubles: RunTroubles;
  readonly share: Pick<MachineShare, "concurrency" | "look">;
  /** Null: this process alone runs its items. */
  readonly elsewhere: Elsewhere | null;
  readonly onEvent: OnFleetEvent;
  /** Stops everything immediately. Items that were running run again on resume. */
  readonly stop: AbortSignal;
}

/** The same for its running: the queue says when another process owns the fleet, and everything is stopped then. */
export interface OwnedParts extends FleetParts {
  readonly queue: OwnedQueue;
}

/** What a fleet has whose items machines run too. */
export interface Elsewhere {
  readonly work: WorkStore;
  /** SHA-256 of what machines agree to. */
  readonly agreed: string;
  /** From now on machines may take items. */
  readonly offer: () => Promise<unknown>;
  readonly settleChanges: SettleChanges;
  /** Shorter if the signal is aborted. */
  readonly pause: (ms: number, signal: AbortSignal) => Promise<unknown>;
}

/** What the parts of a running fleet share with its loop. */
export interface FleetLoop {
  /** Aborted if no further item may start; its reason is an error that says why. */
  readonly draining: AbortSignal;
  readonly drain: (why: string) => void;
  /** Aborted if another process owns the fleet: nothing of it may be changed here any more. */
  readonly lost: AbortSignal;
  /** Something has ended or may begin: the loop reads the queue again. */
  readonly wake: () => void;
}

/** An attempt on a machine, with what is known of it. */
export interface EndedElsewhere {
  readonly delivered: Delivered;
  readonly request: ItemRequest;
  /** Checked, and without its changes. */
  readonly result: ItemResult;
  readonly streams: Settlement["streams"];
}

/** Its result with the outcome of its changes. `hasBegun`: files of the project were changed. */
export interface SettledElsewhere {
  readonly result: ItemResult;
  readonly hasBegun: boolean;
}

/**
 * Judges, decides on and applies what an attempt on a machine changed, and returns its result with that. Before the first effect it begins
 * the attempt in the queue; null: another attempt counts meanwhile, and nothing was changed.
 */
export type SettleChanges = (
  ended: EndedElsewhere,
  of: {
    readonly fleet: string;
    readonly job: FleetJob;
    /** Confirmed before what the attempt kept is touched: the next owner of the fleet works on the same. */
    readonly queue: Pick<OwnedQueue, "begin" | "confirm">;
    readonly signal: AbortSignal;
    /** Called when the attempt has begun: from then on its effects must be finished, whatever fails. */
    readonly onBegun: (intent: IntendedSettlement) => void;
  },
) => Promise<SettledElsewhere | null>;

/** What a coordinator exchanges with machines besides the queue. */
export interface Transport {
  /** Of Corral. */
  readonly version: string;
  /** Where content is exchanged. */
  readonly blobs: BlobStore;
  /** Stores everything that the items of a fleet can read, for machines to copy. Rejects with an error for people if that is too much. */
  readonly sendTrees: (sandbox: Sandbox, signal: AbortSignal) => Promise<Agreement["trees"]>;
  readonly settleChanges: SettleChanges;
}

/** What a fleet would run. */
export interface DryRun {
  readonly first: readonly DryItem[];
  readonly items: number;
  /** Items of which no valid request can be made: they would be refused. */
  readonly refused: number;
  readonly attachments: number;
}

/** One item as it would run. */
export interface DryItem extends Pick<ItemRequest, "index" | "key" | "place" | "input" | "attachments"> {
  /** What it would see, with its own narrowing; null if it would be refused. */
  readonly mounts: readonly Pick<Mount, "path" | "mode" | "host">[] | null;
  /** Every reason why it would be refused. */
  readonly problems: readonly string[];
}

export type DryRunOutcome =
  | { readonly ok: true; readonly dryRun: DryRun }
  | { readonly ok: false; readonly problem: LoadProblem<Collisions> }
  | Extract<FleetPermission, { readonly ok: false }>;

interface DryRunRequest {
  readonly spec: FleetSpec;
  readonly items: AsyncIterable<ItemRequest>;
  readonly paths: readonly TemplatePath[];
  /** How many of the first items are shown. */
  readonly shown: number;
  readonly signal: AbortSignal;
}

/** Reads all items and checks them as a fleet does. Nothing runs, and nothing is kept; no Engine is needed. */
export async function dryRun(request: DryRunRequest, env: RunEnvironment): Promise<DryRunOutcome> {
  const { spec, items, paths, shown, signal } = request;
  const permission = await fleetPermission(spec, env);
  if (!permission.ok) return permission;
  checkPaths(paths, permission.sandbox);
  await using begun = await begunItems(items, LOOKED_AT);
  const reason = await refusedAlike(begun.first, spec, permission, env);
  if (reason !== null) return { ok: false, reason };
  const counts = { refused: 0, attachments: 0 };
  const first: DryItem[] = [];
  const seen = async function* (): AsyncGenerator<ItemRequest> {
    for await (const item of begun.items) {
      if (item.refusal !== undefined) counts.refused += 1;
      counts.attachments += item.attachments.length;
      if (first.length < shown) first.push(await dryItem(item, spec, permission, env));
      yield item;
    }
  };
  await using temporary = await throwawayStore();
  const { store } = temporary;
  const loaded = await store.load(await store.create(spec), seen(), { collisionsIn, signal });
  return loaded.ok ? { ok: true, dryRun: { first, items: loaded.total, ...counts } } : loaded;
}

async function dryItem(
  item: ItemRequest,
  spec: FleetSpec,
  { worker, caller, sandbox }: Extract<FleetPermission, { ok: true }>,
  env: RunEnvironment,
): Promise<DryItem> {
  const { index, key, place, input, attachments } = item;
  const about = { index, key, place, ...present({ input }), attachments };
  if (item.refusal !== undefined) return { ...about, mounts: null, problems: [item.refusal] };
  const reads = readByAll(sandbox, spec.reuse);
  const asked = { fleet: "dry-run", run: newRunId(), signal: new AbortController().signal, turn: async () => {} };
  const job = itemJob({ worker, caller, sandbox, reads, env }, item, asked);
  const derivation = await permissionOf(worker, caller, job.narrow, env);
  const problems = derivation.ok ? [] : textsOf(derivation.violations);
  for (const { path } of attachments) {
    const file = await attachedFile(path, caller, "/");
    if (!file.ok) problems.push(`${path}: ${file.reason}`);
  }
  if (!derivation.ok) return { ...about, mounts: null, problems };
  const mounts = derivation.sandbox.mounts.map(({ path, mode, host }) => ({ path, mode, host }));
  return { ...about, mounts, problems };
}

function textsOf(violations: readonly Violation[]): string[] {
  return describeAll(violations).map(({ message }) => message);
}

/** What the worker of a fleet may do, before an Engine is asked; or why the fleet cannot run. */
export type FleetPermission =
  | {
      readonly ok: true;
      readonly worker: WorkerDefinition;
      /** The project's sandbox, under the fleet's policy. */
      readonly caller: Sandbox;
      readonly sandbox: Sandbox;
    }
  | { readonly ok: false; readonly violations: readonly Violation[] }
  | { readonly ok: false; readonly reason: string };

export async function fleetPermission(spec: FleetSpec, run: RunEnvironment): Promise<FleetPermission> {
  const declared = run.project.workers.get(spec.worker);
  if (declared === undefined) return { ok: false, reason: `there is no worker ${spec.worker}` };
  if (isOnlyForSessions(declared))
    return { ok: false, violations: [{ code: "NOTHING_TO_RUN", worker: declared.name }] };
  const caller = await rootSandbox(run, spec.policy, declared);
  const own = await permissionOf(declared, caller, null, run);
  if (!own.ok) return own;
  const tooLong = whyTooLong(spec, own.sandbox);
  if (tooLong !== null) return { ok: false, reason: tooLong };
  const worker = spec.timeoutMs === null ? declared : withTimeout(declared, spec.timeoutMs);
  const derivation = spec.timeoutMs === null ? own : await permissionOf(worker, caller, null, run);
  if (!derivation.ok) return derivation;
  const { sandbox } = derivation;
  const refusal = spec.reuse === "scrubbed" ? whyNotScrubbed(worker, sandbox) : null;
  if (refusal !== null) return { ok: false, reason: refusal };
  return { ok: true, worker, caller, sandbox };
}

/** A fleet only narrows its worker. */
function whyTooLong({ worker, timeoutMs }: FleetSpec, { limits, policy }: Sandbox): string | null {
  const limit = limits.timeoutMs ?? policy.maxLimits.timeoutMs;
  if (timeoutMs === null || timeoutMs <= limit) return null;
  return `the timeout ${formatDuration(timeoutMs)} is longer than the limit of worker ${worker}, which is ${formatDuration(limit)}: use a shorter one, or raise \`timeout\` in the worker's \`limits\``;
}

/** As if the worker's file declared it. */
function withTimeout(worker: WorkerDefinition, timeoutMs: number): WorkerDefinition {
  return { ...worker, needs: { ...worker.needs, limits: { ...worker.needs.limits, timeoutMs } } };
}

/** Why the worker's items cannot share a cell; null if they can. */
function whyNotScrubbed(worker: WorkerDefinition, sandbox: Sandbox): string | null {
  if (sandbox.policy.reuse !== "scrubbed")
    return `the policy ${sandbox.policy.name} does not allow \`reuse: scrubbed\`; use \`fresh\`, or a policy that does, such as batch`;
  if (sandbox.secrets !== undefined)
    return `worker ${worker.name} has secrets inside, and a cell that serves many items holds none: use \`reuse: fresh\``;
  if (sandbox.writableRoot)
    return `worker ${worker.name} writes its root file system, and what an item leaves there the next one would run: use \`reuse: fresh\``;
  const { seccomp, noNewPrivileges, rootUser, capabilities } = sandbox.policy.hardening;
  if (seccomp !== "corral" || !noNewPrivileges || rootUser || capabilities.length > 0)
    return `the policy ${sandbox.policy.name} weakens the isolation between items of a shared cell (seccomp, root user or capabilities): use \`reuse: fresh\``;
  if (worker.agent !== undefined) return "an agent has no command that a shared cell can run: use `reuse: fresh`";
  if (worker.attachments !== undefined)
    return "a worker that declares `attachments` needs its own cell for each item: use `reuse: fresh`";
  if (worker.services !== undefined)
    return "a worker with services needs its own cell for each item: use `reuse: fresh`";
  if (worker.calls.length > 0)
    return "a worker that calls other workers needs its own cell for each item: use `reuse: fresh`";
  return null;
}
