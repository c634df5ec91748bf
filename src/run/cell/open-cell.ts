import PQueue from "p-queue";
import { DiskBaseline, DiskWatch, SMALL_FILES_BYTES } from "../../isolation/disk/disk-watch.ts";
import { type CellFiles, writeCellFiles } from "../../isolation/network/name-files.ts";
import {
  type DriverName,
  HOSTS_PATH,
  nameLines,
  networkFiles,
  type Plan,
  type PlannedMount,
  type PlannedNetwork,
} from "../../isolation/plan/plan.ts";
import type { Accept, Cell, CellExit, Listening, ServingCell, SessionCell } from "../../isolation/port/cell.ts";
import { type Driver, EngineTrouble, type Start, type StartRequest } from "../../isolation/port/driver.ts";
import type { OnImageProgress } from "../../isolation/port/images.ts";
import type { Pins } from "../../isolation/sources/pin.ts";
import { Disposables } from "../../platform/disposables.ts";
import { MAX_TIMER_MS, onAbort } from "../../platform/within.ts";
import { type AllowedNetwork, type NetworkPlaces, networkPlaces } from "../../sandbox/network/rule.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { SecretUnavailable } from "../../secrets/read-secret.ts";
import { present } from "../../text/present.ts";
import type { CellHost, Records } from "../model/environment.ts";
import type { CellUse, RunIdentity } from "../model/events.ts";
import type { StopReason } from "../model/result.ts";
import { type BrokerService, openBroker } from "./broker.ts";
import { type PlannedJob, type Plumbing, prepare, type StagedPaths } from "./prepare.ts";
import type { CellServices, RunNetwork } from "./run-network.ts";

/** How long a worker that was asked to end may take before it is ended. */
const GRACE_MS = 2000;
/** How long the engine may take to report the end of a cell that was killed. */
const KILL_TIMEOUT_MS = 30_000;

export interface Supervision {
  readonly exit: CellExit;
  /** Why Corral ended the cell; null if the worker ended by itself. */
  readonly stopped: StopReason | null;
}

export interface SupervisionBounds {
  readonly timeoutMs: number;
  /** Aborted when the run is cancelled, by a person or with its caller. */
  readonly signal: AbortSignal;
  /** Aborted when the worker has printed more than it may. */
  readonly flooded: AbortSignal;
  /** Aborted when it has written more than it may. */
  readonly overDisk: AbortSignal;
}

/** Waits for a released cell to end, and ends it if it exceeds a bound. The first reason is reported. */
export async function supervise(cell: Cell, bounds: SupervisionBounds): Promise<Supervision> {
  let stopped: StopReason | null = null;
  const { promise: unanswered, resolve: giveUp } = Promise.withResolvers<CellExit>();
  const timers: NodeJS.Timeout[] = [];
  const after = (ms: number, action: () => void): void => {
    timers.push(setTimeout(action, Math.max(0, Math.min(ms, MAX_TIMER_MS))));
  };
  // If the engine cannot be asked to kill, the exit reports that; there is nothing to add here.
  const kill = (signal: "SIGTERM" | "SIGKILL"): void => void cell.kill(signal).catch(() => {});
  const end = (): void => {
    kill("SIGKILL");
    after(KILL_TIMEOUT_MS, () =>
      giveUp({ kind: "lost", reason: "the engine did not report the end of a killed cell" }),
    );
  };
  const stop = (reason: StopReason): void => {
    if (stopped !== null) return;
    stopped = reason;
    if (reason === "output_limit" || reason === "disk_limit") end();
    else {
      kill("SIGTERM");
      after(GRACE_MS, end);
    }
  };

  after(bounds.timeoutMs, () => stop("timed_out"));
  using _cancel = onAbort(bounds.signal, () => stop("cancelled"));
  using _flood = onAbort(bounds.flooded, () => stop("output_limit"));
  using _disk = onAbort(bounds.overDisk, () => stop("disk_limit"));
  try {
    const exit = await Promise.race([cell.exit, unanswered]);
    return { exit, stopped };
  } finally {
    for (const timer of timers) clearTimeout(timer);
  }
}

interface OpenedParts {
  readonly cell: Cell;
  /** What it began with. */
  readonly planned: PlannedNetwork;
  readonly files: CellFiles;
  readonly accept: Accept;
  /** Receives why a host that was granted has no place of its own in the cell. */
  readonly trouble: (detail: string) => void;
}

/**
 * Gives hosts that are granted to a running cell their places in it: a name, and sockets that listen. What is revoked keeps its
 * place, at which every connection is refused: another host never takes it.
 */
class GrowingNetwork implements AsyncDisposable {
  readonly #parts: OpenedParts;
  readonly #listening = new Disposables();
  /** One after the other, as each place depends on those before. */
  readonly #turns = new PQueue({ concurrency: 1 });
  #places: NetworkPlaces;

  constructor(parts: OpenedParts) {
    this.#parts = parts;
    this.#places = parts.planned;
  }

  /** Settles when the cell has a place for each host of the list. Rejects only for a bug. */
  async grow(network: AllowedNetwork): Promise<void> {
    await this.#turns.add(() => this.#grow(network));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#turns.onIdle();
    await this.#listening[Symbol.asyncDispose]();
  }

  async #grow(network: AllowedNetwork): Promise<void> {
    const { cell, files, accept, trouble } = this.#parts;
    const before = this.#places;
    const next = networkPlaces(network, before);
    const places = next.listeners.slice(before.listeners.length);
    if (places.length === 0) return;
    try {
      const listening = await cell.listen(places, accept);
      if (!listening.ok) return trouble(`what was granted has no place in the container: ${listening.reason}`);
      this.#listening.use(listening);
    } catch (error) {
      // Nothing in a cell that has ended misses it.
      if (error instanceof EngineTrouble) return trouble(error.message);
      throw error;
    }
    this.#places = next;
    await files.append(HOSTS_PATH, nameLines(next.names.slice(before.names.length)));
  }
}

/** To hide a shorter text wherever it is in an output would hide ordinary words and numbers. */
const MIN_SECRET_CHARS = 8;

export type SecretsInside =
  | { readonly ok: true; readonly values: ReadonlyMap<string, string> }
  | { readonly ok: false; readonly violations: readonly Violation[] };

/** Reads the values of a sandbox's secrets, before a cell starts. All that cannot be read are reported together. */
async function readSecretsInside(
  { secrets = [] }: Pick<Sandbox, "secrets">,
  { secretInside }: Pick<CellHost, "secretInside">,
  signal: AbortSignal,
): Promise<SecretsInside> {
  const values = new Map<string, string>();
  const violations: Violation[] = [];
  for (const secret of secrets) {
    const value = await secretInside(secret, signal).catch((error: unknown) => {
      if (!(error instanceof SecretUnavailable)) throw error;
      return error;
    });
    const reason = typeof value === "string" ? faultOf(value) : value.message;
    if (reason !== null) violations.push({ code: "SECRET_NOT_READ", secret, reason });
    else if (typeof value === "string") values.set(secret, value);
  }
  return violations.length > 0 ? { ok: false, violations } : { ok: true, values };
}

function faultOf(value: string): string | null {
  if (value.length >= MIN_SECRET_CHARS) return null;
  return `it has fewer than ${MIN_SECRET_CHARS} characters, which Corral could not hide in output. Use a longer one`;
}

export interface CellRequest<C extends Cell> {
  /** What the cell is planned for. Its `run` names the cell and its socket. */
  readonly job: PlannedJob;
  readonly sandbox: Sandbox;
  readonly kind: CellKind<C>;
  /** Whose cell it is: its troubles are reported under this name. */
  readonly owner: RunIdentity;
  readonly signal: AbortSignal;
  /** Takes over the connections of a cell with an allow list; null: it can have none, and is refused. */
  readonly accept: Accept | null;
  /** Tells the cell of hosts that are granted while it runs. Absent: none are. */
  readonly follow?: RunNetwork["follow"];
  /** What its programs reach at its own loopback device. Absent or null: nothing runs beside it. */
  readonly services?: CellServices | null;
  /** Settles when the work may begin, or with why it may not; absent: at once. The verified cell waits at its gate meanwhile. */
  readonly turn?: () => Promise<readonly Violation[]>;
}

export type CellOpening<C extends Cell> =
  | OpenedCell<C>
  | (AsyncDisposable & { readonly ok: false; readonly violations: readonly Violation[] });

/** A verified cell in which nothing has begun. Disposing removes it and everything that was made for it. */
export interface OpenedCell<C extends Cell> extends AsyncDisposable {
  readonly ok: true;
  readonly plan: Plan;
  readonly pins: Pins;
  /** Aborted when its programs have written more than they may. The cell is killed then. */
  readonly overDisk: AbortSignal;
  /** Measures now: a program may write faster than the watch looks. */
  isOverDisk(): Promise<boolean>;
  /** True if its programs have written all that they may. */
  isDiskFull(): Promise<boolean>;
  /** True once it has ended by itself or was killed. */
  hasEnded(): boolean;
  /**
   * The cell, to work in for the run `who`. Reports that work as started, which puts it into the audit trail, and answers
   * the programs' requests by `service` from then on; null for a cell without a socket. A cell that does one work after
   * another begins once for each.
   */
  begin(who: RunIdentity, service: BrokerService | null): C;
  /** Ends everything in the cell. Best effort: a cell that cannot be killed ends when it is removed. */
  kill(): void;
}

/**
 * Opens a cell of any kind: a socket, a plan with pinned sources, a verified cell, its network, a watch over what it writes.
 * Whatever every cell must have belongs here. A step that fails undoes the steps before it, the last first.
 */
export async function openCell<C extends Cell>(
  request: CellRequest<C>,
  env: CellHost & Records,
): Promise<CellOpening<C>> {
  const begunAt = env.now();
  let isMeasured = false;
  const measured = (code: string | null, driver = env.driver.name): void => {
    if (isMeasured) return;
    isMeasured = true;
    const measure = { what: "cell", driver, kind: request.kind.use, ms: env.now() - begunAt } as const;
    env.emit({ type: "measured", ...request.owner, measure: { ...measure, code } });
  };
  try {
    const opening = await openedCell(request, env, (driver) => measured(null, driver));
    if (!opening.ok) measured(opening.violations[0]?.code ?? "REFUSED");
    return opening;
  } catch (error) {
    measured(request.signal.aborted ? "CANCELLED" : "ENGINE_TROUBLE");
    throw error;
  }
}

/** `ready` is called with what made the cell, when that waits at its gate for its turn. */
async function openedCell<C extends Cell>(
  { job, sandbox, kind, owner, signal, accept, follow, services = null, turn }: CellRequest<C>,
  env: CellHost & Records,
  ready: (driver: DriverName) => void,
): Promise<CellOpening<C>> {
  const trouble = (detail: string): void => env.emit({ type: "trouble", ...owner, detail });
  await using parts = new Disposables();
  // The gate waits until the plan was verified: then the values reach it, and nothing else than the cell has them.
  const secrets = await readSecretsInside(sandbox, env, signal);
  if (!secrets.ok) return refused(secrets.violations);
  env.masking.hold(owner.root, secrets.values);
  const broker = kind.hasSocket ? parts.use(await openBroker(env.ownerDir, job.run)) : null;
  const socket = broker === null ? {} : { socket: broker.socket };
  const names = services?.names ?? [];
  const texts = networkFiles(sandbox.commandNetwork ?? sandbox.network, names);
  const files = parts.use(await writeCellFiles(env.ownerDir, job.run, texts));
  const given = { ...socket, files: files.files, services: names, ...kind.given };
  const onProgress: OnImageProgress = (progress) => env.emit({ type: "image", ...owner, progress });
  const preparation = parts.use(await prepare(job, sandbox, given, env, { owner, signal, onProgress }));
  if (!preparation.ok) return refused(preparation.violations);
  const { plan, pins, notes } = preparation;
  for (const note of notes) trouble(note);
  const started = await kind.start(env.driver, { plan, pins, secrets: secrets.values, signal });
  if (!started.ok) return refused(started.violations);
  const { cell } = started;
  parts.use(removalOf(cell, trouble));
  const listening = await listen(cell, plan, accept);
  if (!listening.ok) return refused([{ code: "NETWORK_NOT_ENFORCEABLE", reason: listening.reason }]);
  parts.use(listening);
  const beside = services === null ? null : await listenBeside(cell, services);
  if (beside?.ok === false) return refused(names.map((service) => ({ code: "SERVICE_REFUSED", service, ...beside })));
  if (beside !== null) parts.use(beside);
  if (accept !== null && follow !== undefined && typeof plan.network !== "string") {
    const growing = parts.use(new GrowingNetwork({ cell, planned: plan.network, files, accept, trouble }));
    parts.use(await follow((network) => growing.grow(network)));
  }
  ready(cell.enforcement.driver);
  const against = (await turn?.()) ?? [];
  if (against.length > 0) return refused(against);
  // Not before its turn: what others write meanwhile in directories that they share is not this cell's.
  const inTransit = (): boolean => broker?.endHolding() ?? false;
  const watch = parts.use(await watchDisk(cell, plan, kind, pins, { inTransit, trouble }));
  const kill = (): void => void cell.kill("SIGKILL").catch(() => {});
  watch.exceeded.addEventListener("abort", kill, { once: true });
  let hasEnded = false;
  void cell.exit.then(() => {
    hasEnded = true;
  });
  const kept = parts.move();
  return {
    ok: true,
    plan,
    pins,
    overDisk: watch.exceeded,
    isOverDisk: () => watch.isExceeded(),
    isDiskFull: () => watch.hasGrownBy(plan.limits.diskBytes),
    hasEnded: () => hasEnded,
    begin(who, service) {
      if (service !== null) broker?.serve(service);
      env.emit({ type: "started", ...who, plan, driver: cell.enforcement.driver });
      return cell;
    },
    kill,
    [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose](),
  };
}

/** Before anything of the worker runs: no program of the cell can take one of the addresses first. */
async function listen(cell: Cell, { network }: Plan, accept: Accept | null): Promise<Listening> {
  if (typeof network === "string") return { ok: true, [Symbol.asyncDispose]: async () => {} };
  if (accept === null) return { ok: false, reason: "nothing takes the connections of this cell" };
  return await cell.listen(network.listeners, accept);
}

/** Some programs take only the first address of `localhost`, which is that of version 6; a machine may have none. */
async function listenBeside(cell: Cell, { places, accept }: CellServices): Promise<Listening> {
  const both = await cell.listen([...places, ...places.map((place) => ({ ...place, address: "::1" }))], accept);
  return both.ok ? both : await cell.listen(places, accept);
}

async function watchDisk(
  cell: Cell,
  plan: Plan,
  { written, baseline }: CellKind<Cell>,
  pins: Pins,
  { inTransit, trouble }: { readonly inTransit: () => boolean; readonly trouble: (detail: string) => void },
): Promise<DiskWatch> {
  return await DiskWatch.start({
    places: written(plan, pins),
    limitBytes: plan.limits.diskBytes + SMALL_FILES_BYTES,
    unnamedBytes: () => cell.unnamedBytes(),
    inTransit,
    onFailure: (error) =>
      trouble(`the cell is ended, since its disk usage cannot be measured: ${(error as Error).message}`),
    ...present({ baseline }),
  });
}

/** Reports an engine that fails to remove the cell: the result of the work in it is already known and stays true. */
function removalOf(cell: Cell, trouble: (detail: string) => void): AsyncDisposable {
  return {
    async [Symbol.asyncDispose]() {
      try {
        await cell[Symbol.asyncDispose]();
      } catch (error) {
        if (!(error instanceof EngineTrouble)) throw error;
        trouble(error.message);
      }
    },
  };
}

function refused(violations: readonly Violation[]): CellOpening<never> {
  return { ok: false, violations, [Symbol.asyncDispose]: async () => {} };
}

/** The views of a run: which of its mounts are views, and the directories on the host that hold what is written to them. */
type StagedViews = StagedPaths & { readonly written: readonly string[] };

/** What differs between the kinds of cells. Everything else is the same for all of them (`openCell`). */
export interface CellKind<C extends Cell> {
  readonly use: CellUse;
  readonly start: (driver: Driver, request: Omit<StartRequest, "onOutput">) => Promise<Start<C>>;
  /** What its plan needs beside its sandbox. */
  readonly given: Omit<Plumbing, "socket">;
  /** False if its programs can ask Corral for nothing: then it has no socket. */
  readonly hasSocket: boolean;
  /** The directories outside of its own memory that it can write, each by a path that cannot lead elsewhere. */
  readonly written: (plan: Plan, pins: Pins) => readonly string[];
  /** What there was before the first of several cells that share one disk limit; absent: before this one. */
  readonly baseline?: DiskBaseline;
}

/** Runs a worker's command once. */
export function workerCell(stage: StagedViews, onOutput: StartRequest["onOutput"]): CellKind<Cell> {
  return {
    use: "command",
    start: (driver, request) => driver.start({ ...request, onOutput }),
    given: { views: stage },
    hasSocket: true,
    written: (plan, pins) => [...writtenDirectly(plan, pins), ...stage.written],
  };
}

/**
 * Runs a session's commands. `outputDir`: the directory with what they printed; `commandsDir`: of their pipes, if its first process
 * starts them.
 */
export function sessionCell(
  stage: StagedViews,
  dirs: Pick<Plumbing, "outputDir" | "commandsDir">,
  baseline: DiskBaseline,
): CellKind<SessionCell> {
  return {
    use: "session",
    start: (driver, request) => driver.startSession({ ...request, onOutput: () => {} }),
    given: { ...dirs, views: stage },
    hasSocket: true,
    written: (plan, pins) => [...writtenDirectly(plan, pins), ...stage.written],
    baseline,
  };
}

/** Runs a service: its command, and the one that says whether it is ready. It has no socket, and writes nothing but its own memory. */
export function serviceCell(
  stage: StagedViews,
  dirs: Pick<Plumbing, "outputDir" | "commandsDir">,
): CellKind<SessionCell> {
  return { ...sessionCell(stage, dirs, new DiskBaseline()), use: "service", hasSocket: false };
}

/**
 * Runs a worker's command for one item after another. `folder`: holds everything that the items can write. It has no socket:
 * descriptors that an item sends to it would wait there, and stay open, when every process of the item has ended.
 */
export function servingCellKind(items: Plumbing["items"] & object, folder: string): CellKind<ServingCell> {
  return {
    use: "items",
    start: (driver, request) => driver.startServing(request),
    given: { items, views: { paths: new Set() } },
    hasSocket: false,
    written: () => [folder],
  };
}

/** The directories that a cell writes without a view in between. One inside another is counted with the outer one. */
function writtenDirectly(plan: Plan, pins: Pins): Set<string> {
  const direct = plan.mounts.filter(({ mode, staged, kind }) => mode === "rw" && !staged && kind === "directory");
  const outer = direct.filter((mount) => !direct.some((other) => isInside(mount, other)));
  return new Set(outer.flatMap(({ host }) => pins.sources.get(host)?.descriptorPath ?? []));
}

function isInside({ host, identity }: PlannedMount, outer: PlannedMount): boolean {
  return identity.device === outer.identity.device && host.startsWith(`${outer.host}/`);
}
