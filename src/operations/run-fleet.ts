import type { Project } from "../declarations/project.ts";
import { type FleetEnvironment, type OpenedFleet, resumeFleet, retryFleet, startFleet } from "../fleet/fleet.ts";
import { openFleetStore } from "../fleet/fleet-stores.ts";
import { pathsIn } from "../fleet/items/item-template.ts";
import { type Collisions, describeCollisions } from "../fleet/items/path-template.ts";
import type { FleetSpec, ItemRequest, ItemResult, ItemTemplate } from "../fleet/model/item.ts";
import { QueueError } from "../fleet/model/queue.ts";
import type { FleetStore, LoadProblem } from "../fleet/model/store.ts";
import { type FleetEvent, type FleetSummary, type FleetTotals, totalsOf } from "../fleet/running/events.ts";
import { type DryRun, dryRun } from "../fleet/running/fleet-parts.ts";
import { itemRequests } from "../fleet/running/item-result.ts";
import { inFleetSpan, openTracing } from "../platform/tracing.ts";
import type { Emit } from "../run/model/events.ts";
import { describeAll } from "../run/model/result.ts";
import { type Corral, openCorralFor } from "../run/open/corral.ts";
import { openPreview } from "../run/open/preview.ts";
import { present } from "../text/present.ts";
import type { FleetStart } from "./fleet-start.ts";
import { fleetIn } from "./fleets.ts";
import type { MachinePlace } from "./machine.ts";
import { RequestError, refusedError } from "./request-error.ts";
import { transportBy } from "./work-place.ts";

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
