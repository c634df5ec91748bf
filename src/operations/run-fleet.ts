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
import { type FleetEnvironment, type OpenedFleet, resumeFleet, retryFleet, startFleet } from "../fleet/fleet.ts";
import { openFleetStore } from "../fleet/fleet-stores.ts";
import { pathsIn } from "../fleet/items/item-template.ts";
import { type Collisions, describeCollisions } from "../fleet/items/path-template.ts";
import type { FleetSpec, ItemRequest, ItemResult, ItemTemplate } from "../fleet/model/item.ts";
import { QueueError } from "../fleet/model/queue.ts";
import type { FleetStore, LoadProblem } from "../fleet/model/store.ts";
import type { WorkStore } from "../fleet/model/work.ts";
import { settlingDelivered } from "../fleet/running/begun-effects.ts";
import { type FleetEvent, type FleetSummary, type FleetTotals, totalsOf } from "../fleet/running/events.ts";
import { capacityOf, type DryRun, dryRun, type Transport } from "../fleet/running/fleet-parts.ts";
import { itemRequests } from "../fleet/running/item-result.ts";
import { AskingCoordinator, whenThere } from "../fleet/work/asking-coordinator.ts";
import { hostFleets } from "../fleet/work/host-fleet.ts";
import type { OnWorkEvent } from "../fleet/work/hosted-fleets.ts";
import { WorkingMachine } from "../fleet/work/working-machine.ts";
import { inFleetSpan, openTracing } from "../platform/tracing.ts";
import type { Emit } from "../run/model/events.ts";
import { describeAll } from "../run/model/result.ts";
import { type Corral, openCorralFor } from "../run/open/corral.ts";
import { openPreview } from "../run/open/preview.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { lockOwner } from "../state/owner.ts";
import { statePaths } from "../state/state-dir.ts";
import { present } from "../text/present.ts";
import type { FleetStart } from "./fleet-start.ts";
import { fleetIn } from "./fleets.ts";
import type { MachinePlace } from "./machine.ts";
import { RequestError, refusedError } from "./request-error.ts";

export interface FleetRunOptions {
  readonly onEvent?: (event: FleetEvent) => void;
  /** Called once, before the first item runs. */
  readonly onOpened?: (spec: FleetSpec) => void;
  /** Starts no further item, and waits for those that run. The fleet can be resumed. */
  readonly drain?: AbortSignal;
  /** Ends running items at once. The fleet can be resumed. */
  readonly stop?: AbortSignal;
}

/**
 * Runs a fleet, yields each result as it comes, and returns how the fleet ended. All items are read before the first
 * runs. If the caller stops taking results, running items end and the fleet can be resumed. It waits for its database as long as that
 * is away, until it is drained or stopped, or the caller stops taking results.
 *
 * @throws RequestError FLEET_REFUSED if nothing was run, UNKNOWN_FLEET
 */
export async function* runFleet(
  { environment: run, project, stateDir }: Pick<Corral, "environment" | "project" | "stateDir">,
  start: FleetStart,
  { onEvent = () => {}, onOpened = () => {}, drain = NEVER, stop = NEVER }: FleetRunOptions = {},
): AsyncGenerator<ItemResult, FleetSummary, undefined> {
  const left = new AbortController();
  await using store = await openFleetStore(stateDir, project.dir, run.models.env, {
    over: AbortSignal.any([drain, stop, left.signal]),
    onAway: (why) => onEvent({ type: "waiting", for: "queue", why }),
    onBack: () => onEvent({ type: "continued" }),
  });
  const transport = store.work === null ? {} : { transport: await transportBy(store.work, run.models.env) };
  const env = { run, store, onEvent, stop, ...transport };
  const opened = await openedFleet(start, env);
  if (!opened.ok) throw refusalOf(start.kind === "new" ? start.spec.worker : start.fleet, opened);
  await using fleet = opened;
  const running = fleet.fleet;
  const { spec } = await fleetIn(store, running.id);
  onOpened(spec);
  const about = { fleet: running.id, worker: spec.worker };
  const ended = inFleetSpan(await openTracing(), about, () => running.run()).catch((error: unknown) => {
    throw withAdvice(error, running.id);
  });
  // Awaited below; until then a failure is no unhandled rejection.
  ended.catch(() => {});
  const onDrain = (): void => running.drain("the fleet was stopped");
  drain.addEventListener("abort", onDrain, { once: true });
  if (drain.aborted) onDrain();
  let isOver = false;
  try {
    yield* running.results;
    isOver = true;
  } finally {
    drain.removeEventListener("abort", onDrain);
    if (!isOver) {
      running.drain("the results are no longer read");
      left.abort();
    }
    await ended;
  }
  return await ended;
}

/**
 * What a new fleet would run: all items are read and checked, the sandboxes of the first `shown` ones are derived. Nothing runs
 * and nothing is kept. No Engine is needed.
 *
 * @throws RequestError FLEET_REFUSED if nothing would run
 */
export async function dryRunFleet(
  { spec, requests, cwd, leftOut = () => {}, ...more }: Extract<FleetStart, { kind: "new" }>,
  { project, ...machine }: MachinePlace & { readonly project: Project },
  { shown, signal }: { readonly shown: number; readonly signal: AbortSignal },
): Promise<DryRun> {
  const { environment } = await openPreview(project, machine);
  const { allowEmpty = false, note } = more;
  const items = itemRequests(requests, { cwd, signal, leftOut, allowEmpty, ...present({ note }) });
  const outcome = await dryRun({ spec, items, paths: pathsIn(requests.template), shown, signal }, environment);
  if (!outcome.ok) throw refusalOf(spec.worker, outcome);
  return outcome.dryRun;
}

/**
 * Runs a fleet of a project that is opened for it alone, to its end or until it is stopped, for those who show no screen.
 *
 * @throws RequestError FLEET_REFUSED if nothing was run, EngineUnavailableError
 */
export async function ranAlone(
  project: Project,
  start: FleetStart,
  {
    machine,
    emit,
    onResult,
    ...options
  }: Pick<FleetRunOptions, "onEvent" | "stop"> & {
    readonly machine: MachinePlace;
    readonly emit?: Emit;
    readonly onResult: (result: ItemResult) => void;
  },
): Promise<FleetSummary> {
  await using corral = await openCorralFor(project, { ...machine, ...present({ emit }) });
  const results = runFleet(corral, start, options);
  for (;;) {
    const next = await results.next();
    if (next.done) return next.value;
    onResult(next.value);
  }
}

/** A new fleet in a program's words. What is absent is as on the command line. */
export interface MapRequest extends Partial<Omit<FleetSpec, "version" | "worker" | "source">> {
  readonly worker: string;
  /** Maps of fields, or paths: what the template is filled with. */
  readonly items: AsyncIterable<unknown> | Iterable<unknown>;
  /** Absent: nothing of an item is given to the worker. */
  readonly template?: ItemTemplate;
  /** Folders, in addition to the project's, whose files items may name. Absolute. */
  readonly within?: readonly string[];
  /** Absent: that there is no item is an error. */
  readonly allowEmpty?: boolean;
  /** Receives what happens, as `--events` writes it. It must not throw. */
  readonly onEvent?: (event: FleetEvent) => void;
  /** Receives how far the fleet is, whenever that changes. It must not throw. */
  readonly onProgress?: (totals: FleetTotals) => void;
  /** Starts no further item; running items end. The fleet can be resumed. */
  readonly drain?: AbortSignal;
  /** Ends running items at once. The fleet can be resumed. */
  readonly signal?: AbortSignal;
}

/**
 * Runs a worker over many items, each in a sandbox of its own, and yields each result as it comes: see {@link runFleet}.
 *
 * @throws RequestError FLEET_REFUSED if nothing was run.
 */
export async function* mapItems(
  corral: Pick<Corral, "environment" | "project" | "stateDir">,
  request: MapRequest,
): AsyncGenerator<ItemResult, FleetSummary, undefined> {
  const { worker, items, template = {}, within = [], allowEmpty = false, ...more } = request;
  const { onEvent, onProgress, drain, signal, ...said } = more;
  const { dir, fleet } = corral.project;
  const spec: FleetSpec = { ...DEFAULTS, ...fleet, ...said, worker, source: "a program" };
  const requests = { source: { kind: "values", values: items }, template, within, templateDir: dir } as const;
  const start = { kind: "new", spec, requests, cwd: dir, allowEmpty } as const;
  const tell = onProgress === undefined ? () => {} : totalsOf(onProgress);
  return yield* runFleet(corral, start, {
    onEvent(event) {
      onEvent?.(event);
      tell(event);
    },
    ...present({ drain, stop: signal }),
  });
}

const DEFAULTS: Omit<FleetSpec, "worker" | "source"> = {
  version: 1,
  policy: null,
  concurrency: "auto",
  reuse: "fresh",
  timeoutMs: null,
  retries: 0,
  maxFailures: null,
  cache: true,
  machines: null,
};

const NEVER = new AbortController().signal;

function withAdvice(error: unknown, fleet: string): unknown {
  if (!(error instanceof QueueError && error.isPassing)) return error;
  return new QueueError(`${error.message} Then continue with \`corral fleet resume ${fleet}\`.`, {
    cause: error,
    isPassing: true,
  });
}

async function openedFleet(start: FleetStart, env: FleetEnvironment): Promise<OpenedFleet> {
  if (start.kind === "new") {
    const { spec, requests, cwd, leftOut = () => {}, allowEmpty = false, note } = start;
    const reading = { cwd, signal: env.stop, leftOut, allowEmpty, ...present({ note }) };
    return await startFleet(spec, itemRequests(requests, reading), env, pathsIn(requests.template));
  }
  const { spec, state, id } = await fleetIn(env.store, start.fleet);
  if (start.kind === "resume") return await resumeFleet(id, env);
  // Whether the process of a running fleet is alive is known when it is taken over.
  if (state === "loading" || (state === "running" && start.asNew))
    return { ok: false, reason: `fleet ${id} is ${state}; its failed items can be retried when it has ended` };
  if (!(await hasFailed(env.store, id))) return { ok: false, reason: `fleet ${id} has no failed items` };
  if (!start.asNew) return await retryFleet(id, spec, env);
  return await startFleet({ ...spec, source: `failed items of ${id}` }, failedItems(env.store, id), env);
}

async function hasFailed(store: FleetStore, id: string): Promise<boolean> {
  for await (const _ of store.failed(id)) return true;
  return false;
}

async function* failedItems(store: FleetStore, id: string): AsyncGenerator<ItemRequest> {
  let index = 0;
  for await (const request of store.failed(id)) {
    yield { ...request, index };
    index += 1;
  }
}

function refusalOf(asked: string, opened: Extract<OpenedFleet, { ok: false }>): RequestError {
  if ("violations" in opened) return refusedError("FLEET_REFUSED", asked, describeAll(opened.violations));
  return new RequestError("FLEET_REFUSED", asked, "reason" in opened ? opened.reason : problemText(opened.problem));
}

function problemText(problem: LoadProblem<Collisions>): string {
  switch (problem.code) {
    case "duplicate_key":
      return `two items have the key ${JSON.stringify(problem.key)}: ${problem.places.join(" and ")}; choose a \`key\` that is different for each item`;
    case "collisions":
      return `items would write into each other's folders, so nothing was run:\n${describeCollisions(problem.collisions)}`;
    case "too_large":
      return `${problem.place}: the item has ${problem.bytes} bytes; at most ${problem.maxBytes} are allowed`;
    case "too_many":
      return `there are more than ${problem.maxItems} items`;
  }
}

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
