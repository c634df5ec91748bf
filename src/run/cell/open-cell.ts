import { DiskWatch, SMALL_FILES_BYTES } from "../../isolation/disk/disk-watch.ts";
import { writeCellFiles } from "../../isolation/network/cell-files.ts";
import type { DriverName } from "../../isolation/plan/enforcement.ts";
import { networkFiles } from "../../isolation/plan/network.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import type { Accept, Cell, Listening } from "../../isolation/port/cell.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import type { OnImageProgress } from "../../isolation/port/images.ts";
import type { Pins } from "../../isolation/sources/pin.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { Disposables } from "../model/disposables.ts";
import type { CellHost, Records } from "../model/environment.ts";
import type { RunIdentity } from "../model/events.ts";
import { type BrokerService, openBroker } from "./broker.ts";
import type { CellKind } from "./cell-kinds.ts";
import { GrowingNetwork } from "./growing-network.ts";
import { type PlannedJob, prepare } from "./prepare.ts";
import type { RunNetwork } from "./run-network.ts";
import { readSecretsInside } from "./secrets-inside.ts";

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
  /** Settles when the work may begin; absent: at once. The verified cell waits at its gate meanwhile. */
  readonly turn?: (() => Promise<void>) | undefined;
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
  { job, sandbox, kind, owner, signal, accept, follow, turn }: CellRequest<C>,
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
  const files = parts.use(await writeCellFiles(env.ownerDir, job.run, networkFiles(sandbox.network)));
  const given = { ...socket, files: files.files, ...kind.given };
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
  if (accept !== null && follow !== undefined && typeof plan.network !== "string") {
    const growing = parts.use(new GrowingNetwork({ cell, planned: plan.network, files, accept, trouble }));
    parts.use(await follow((network) => growing.grow(network)));
  }
  ready(cell.enforcement.driver);
  await turn?.();
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
    ...(baseline === undefined ? {} : { baseline }),
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
