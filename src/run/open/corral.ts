import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { TranscriptFolder } from "../../agent/transcript.ts";
import { type Approver, leftWaiting, type Question } from "../../approval/approver.ts";
import { isShareable, QueuedApprover } from "../../approval/queued-approver.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import { RootTrees } from "../../changes/layers/root-trees.ts";
import { SnapshotStore } from "../../changes/layers/snapshot-store.ts";
import { PACKAGE_ROOT } from "../../declarations/place/package-root.ts";
import { makeZoneFolders } from "../../declarations/place/zone-folder.ts";
import { loadProject, type Project } from "../../declarations/project.ts";
import { Repositories } from "../../git/repository.ts";
import { InboxBoard } from "../../inbox/inbox-board.ts";
import { laterEngine, openEngine } from "../../isolation/open-engine.ts";
import { type Driver, EngineTrouble, type Reaped } from "../../isolation/port/driver.ts";
import { DriverUnavailableError, type EnginePort } from "../../isolation/port/engine.ts";
import { alsoRefuse, refusedSourcesFor } from "../../isolation/sources/refused-sources.ts";
import { openTracing } from "../../platform/tracing.ts";
import { Masking, namedSecrets } from "../../secrets/read-secret.ts";
import { makeOwnerDir, removeOwnerDir } from "../../state/live-dir.ts";
import { currentOwner, loadSealKey, readSealKey } from "../../state/owner.ts";
import { makeStateDir, projectPaths, statePaths } from "../../state/state-dir.ts";
import { present } from "../../text/present.ts";
import { changesetStore, intoProject } from "../changes/into-project.ts";
import { finishInterrupted, recordingApplied, type ToldFinish } from "../changes/settle.ts";
import { givingApprover } from "../grants/access-request.ts";
import { GrantLedger } from "../grants/ledger.ts";
import { preparingInCells } from "../images/prepare-in-cell.ts";
import { makingImages } from "../images/worker-images.ts";
import type { RunEnvironment } from "../model/environment.ts";
import type { Emit } from "../model/events.ts";
import type { GrantRecord } from "../model/grantee.ts";
import { SchemaChecks } from "../model/job.ts";
import { openTrail, RecordedApprover } from "../recorded/run-history.ts";
import { tracedEmit } from "../recorded/spans.ts";
import { maskedApprover, maskedEmit, maskedTrail, recordedEmit } from "../recorded-run.ts";
import {
  approverFor,
  imagePlaceOf,
  isContained,
  networkHostOf,
  type OpenOptions,
  openHistory,
  outerProcessFor,
  policiesExist,
  policiesOf,
} from "./options.ts";

/** Questions on the board that may wait at once. `QueuedApprover` bounds those that wait behind them. */
const MAX_AT_ONCE = 1000;

/** The inbox of a project, for the questions of this process; null: the project answers only where they come up. */
function questionBoard(
  { dir, approval }: Pick<Project, "dir" | "approval">,
  { stateDir }: Pick<OpenOptions, "stateDir">,
  emit: Emit,
): InboxBoard | null {
  if (approval.inbox === "closed") return null;
  const place = () => ({
    dir: projectPaths(stateDir, dir).inbox,
    key: readSealKey(stateDir),
    self: currentOwner(),
  });
  return new InboxBoard(dir, place, ({ message }) => {
    const detail = `the inbox of questions cannot be used: ${message}`;
    emit({ type: "trouble", run: "", root: "", parent: null, worker: "corral", attachments: [], detail });
  });
}

/** The approver, with its questions in the inbox as well; if no user can answer here, a question waits there, if the settings say so. */
function sharedApprover(
  approver: Approver,
  board: InboxBoard | null,
  {
    waits,
    timeoutMs,
    onWaiting,
  }: { waits: boolean; timeoutMs: number; onWaiting?: ((id: string, question: Question) => void) | undefined },
): Approver {
  if (board === null) return approver;
  if (isShareable(approver)) approver.shareOn(board);
  if (!waits) return approver;
  const elsewhere = new QueuedApprover({
    ask: null,
    timeoutMs,
    atOnce: MAX_AT_ONCE,
    at: "board",
    ...present({ onPosted: onWaiting }),
  });
  elsewhere.shareOn(board);
  return {
    async decide(request, signal) {
      const decision = await approver.decide(request, signal);
      return decision.unasked ? await elsewhere.decide(request, signal) : decision;
    },
  };
}

/**
 * Waits for the end of this process in a process of its own, which no signal to this one reaches. If this process was killed,
 * the limits of its cells are no longer watched, so `corral reap` removes the cells. The other times are for cells that the Engine was
 * still starting, and for an Engine that does not answer, since it is slow or is started again: no call to it takes longer.
 */
const WATCH = `read -r word; [ "$word" = over ] && exit
for pause in 0.5 2 5 5 10 20 40 60; do sleep "$pause"; [ -d "$CORRAL_STATE_DIR" ] || exit; "$@" reap; done`;

/** From the root, because the folder of this module is another one in the bundle. */
const COMMAND_LINE = join(
  PACKAGE_ROOT,
  extname(import.meta.filename) === ".ts" ? "src/cli/corral.ts" : "dist/cli/corral.cjs",
);

/** What the program needs of the environment to reach the same Engine, and to start as quickly. */
const NAMED = /^(PATH|HOME|NODE_COMPILE_CACHE|DOCKER_.*)$/;

/** Disposing says that nothing is left to remove. */
function watchOwnDeath({ stateDir, engineEnv }: Pick<OpenOptions, "stateDir" | "engineEnv">): Disposable {
  const named = Object.keys(engineEnv).filter((name) => NAMED.test(name));
  const env = Object.fromEntries(named.map((name) => [name, engineEnv[name]]));
  const watch = spawn("/bin/sh", ["-c", WATCH, "corral-watch", process.execPath, COMMAND_LINE], {
    cwd: "/",
    detached: true,
    env: { ...env, CORRAL_STATE_DIR: stateDir },
    stdio: ["pipe", "ignore", "ignore"],
  });
  // Without it, the next Corral removes what this one left.
  for (const source of [watch, watch.stdin]) source.on("error", () => {});
  watch.unref();
  (watch.stdin as { unref?(): void }).unref?.();
  return { [Symbol.dispose]: () => void watch.stdin.end("over\n") };
}

/** A project, ready to run its workers. Opening removes what dead orchestrators left behind. */
export interface Corral extends AsyncDisposable {
  readonly environment: RunEnvironment;
  readonly project: Project;
  /** Where Corral keeps its own. */
  readonly stateDir: string;
  readonly reaped: Reaped;
  /** Why not all of it could be removed: for a person to see, and no reason not to run. */
  readonly reapTrouble: string | null;
}

/**
 * Brings together a project, an Engine and this process's own place on the host.
 *
 * @throws DeclarationError for a project with mistakes, or whose folders cannot be made, EngineUnavailableError if no Engine answers,
 *   DriverUnavailableError if the driver that was asked for cannot make cells, ImageBuildError if the images were not built.
 */
export async function openCorral(options: OpenOptions): Promise<Corral> {
  return await openCorralFor(await loadProject(options.projectDir, options.engineEnv), options);
}

/** The same for a project that is loaded already, and for an engine that may still be opening. */
export async function openCorralFor(
  project: Project,
  options: Omit<OpenOptions, "projectDir">,
  opening: Promise<EnginePort> = openEngine(options),
): Promise<Corral> {
  return (await openedOn(await engineFor(project, opening), true, project, options)).corral;
}

/** A project whose Engine is opened when something first needs it. */
export interface LaterCorral extends Corral {
  /** Opens the Engine now. @throws as {@link openCorral} */
  ready(): Promise<void>;
}

/** For tools: files need no Engine. Without one, commands and calls are refused, with the reason. */
export async function openCorralLater(
  project: Project,
  options: Omit<OpenOptions, "projectDir">,
  open: () => Promise<EnginePort> = () => openEngine(options),
): Promise<LaterCorral> {
  await makeStateDir(options.stateDir);
  await loadSealKey(options.stateDir);
  const later = laterEngine(
    async () => await engineFor(project, open()),
    async (engine) => await adopt(engine),
  );
  const { corral, adopt } = await openedOn(later.port, false, project, options);
  return {
    ...corral,
    async ready() {
      await later.ready();
      await corral.environment.gate();
    },
  };
}

/** @throws DriverUnavailableError if the driver that was asked for cannot make cells */
async function engineFor({ driver }: Pick<Project, "driver">, opening: Promise<EnginePort>): Promise<EnginePort> {
  const engine = (await opening).ofProject(driver);
  const driving = await engine.driving("runs");
  if (driving.driver === null) throw new DriverUnavailableError(driving);
  return engine;
}

interface OpenedOn {
  readonly corral: Corral;
  /** To be called once with an engine that was opened later. */
  readonly adopt: (engine: EnginePort) => Promise<void>;
}

/** `isOpen`: false for an engine that is opened later. */
async function openedOn(
  engine: EnginePort,
  isOpen: boolean,
  project: Project,
  options: Omit<OpenOptions, "projectDir">,
): Promise<OpenedOn> {
  await makeZoneFolders(project);
  const { driver, itemCells } = engine;
  const liveDir = statePaths(options.stateDir).live;
  const [ownerDir, trail] = await Promise.all([
    makeOwnerDir(liveDir, currentOwner()),
    openTrail(options.stateDir, project.dir),
  ]);
  const store = changesetStore(options.stateDir);
  const git = repositoriesOf(project, options, { ownerDir, liveDir, trail });
  const tracing = await openTracing();
  const told = options.emit ?? (() => {});
  const emit = tracing === null ? told : tracedEmit(told, tracing, (worker) => project.workers.has(worker));
  const around = { emit, now: () => performance.now() };
  const { history, close: closeHistory } = openHistory(project, options, ownerDir, around.emit);
  const grants = new GrantLedger(ownerDir, recordedRevocations(trail, around.emit), () =>
    readSealKey(options.stateDir),
  );
  const watch = watchOwnDeath(options);
  const board = questionBoard(project, options, around.emit);
  const close = async (): Promise<void> => {
    using _ = watch;
    board?.[Symbol.dispose]();
    await closeHistory();
    await git?.[Symbol.asyncDispose]();
    await grants[Symbol.asyncDispose]();
    await Promise.all([trail.close(), removeOwnerDir(ownerDir), driver.removeLeft()]);
  };
  try {
    const policyNamed = policiesOf(project);
    const gate = rememberedGate(engine);
    const [reaped, , , finished] = await Promise.all([
      isOpen ? reapedAtOpening(driver) : NOTHING_REAPED,
      isOpen ? gate() : null,
      policiesExist(project, policyNamed),
      // Finishes what dead processes had begun to apply.
      finishInterrupted(store, options.stateDir),
    ]);
    for (const one of finished) tellFinish(one, around.emit);
    const masking = new Masking();
    const waits = project.approval.inbox === "wait" || options.asksElsewhere === true;
    const { timeoutMs } = project.approval;
    const sharing = { waits, timeoutMs, onWaiting: options.onWaiting };
    const approver = approverFor(project, options, (one) => sharedApprover(one, board, sharing));
    const audit = maskedTrail(trail, masking);
    const refusedSources = refusedSourcesFor(
      options.stateDir,
      isOpen ? engine.hostPlaces : null,
      outerProcessFor(options),
    );
    const prepare = preparingInCells(() => environment);
    const environment: RunEnvironment = {
      project,
      projectDir: project.dir,
      policyNamed,
      driver,
      itemCells,
      images: makingImages(imagePlaceOf(project, engine.images, options, { ownerDir, prepare })),
      approver: new RecordedApprover(maskedApprover(approver, masking), audit, around),
      nobodyAsked: new RecordedApprover(
        maskedApprover(approverFor(project, { ...options, approver: leftWaiting }), masking),
        audit,
        around,
      ),
      agreedBy: (user) => {
        const agreed = approverFor(project, { approvalMode: "interactive", approver: givingApprover(user) });
        return new RecordedApprover(agreed, audit, around);
      },
      audit,
      masking,
      secretInside: namedSecrets(project.secrets, options.engineEnv),
      refusedSources,
      grants,
      history,
      roots: {
        trees: new RootTrees(statePaths(options.stateDir).roots, liveDir),
        layers: (image) => engine.unpacked.use(image),
      },
      snapshots: new SnapshotStore(projectPaths(options.stateDir, project.dir).snapshots, liveDir),
      changesets: intoProject(store, trail, recordingApplied(options.stateDir, trail)),
      models: { providers: project.models, projectDir: project.dir, env: options.engineEnv },
      schemas: new SchemaChecks(),
      transcripts: new TranscriptFolder(options.stateDir, project.dir, (detail) => tellTrouble(detail, around.emit)),
      // What is mounted in a container of its own is not seen by the Engine.
      overlays: options.overlays ?? !isContained(options),
      ...networkHostOf(project, options.engineEnv),
      ...options.networkHost,
      ...(git === null ? {} : { git }),
      gate,
      ownerDir,
      ...around,
      emit: maskedEmit(recordedEmit(around.emit, trail), masking),
    };
    const adopt = async (opened: EnginePort): Promise<void> => {
      alsoRefuse(refusedSources, opened.hostPlaces);
      const { reapTrouble } = await reapedAtOpening(opened.driver);
      if (reapTrouble !== null) tellTrouble(`not everything could be reaped: ${reapTrouble}`, around.emit);
    };
    const { stateDir } = options;
    return { corral: { environment, project, stateDir, ...reaped, [Symbol.asyncDispose]: close }, adopt };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Trouble that concerns no run in particular. */
function tellTrouble(detail: string, emit: Emit): void {
  emit({ type: "trouble", run: "", root: "", parent: null, worker: "corral", attachments: [], detail });
}

/** `corral changes` reports an application that cannot be finished: the user can act there. */
function tellFinish({ finished, text }: ToldFinish, emit: Emit): void {
  if (!finished.ok) return;
  const { run, root, worker } = finished.changeset;
  emit({ type: "trouble", run, root, parent: null, worker, attachments: [], detail: text });
}

type ReapedAtOpening = Pick<Corral, "reaped" | "reapTrouble">;

const NOTHING_REAPED: ReapedAtOpening = { reaped: { cells: [], volumes: [], directories: [] }, reapTrouble: null };

async function reapedAtOpening(driver: Driver): Promise<ReapedAtOpening> {
  try {
    return { reaped: await driver.reap(), reapTrouble: null };
  } catch (error) {
    if (!(error instanceof EngineTrouble)) throw error;
    return { ...NOTHING_REAPED, reapTrouble: error.message };
  }
}

/** Made once; if that fails, the next cell tries again. */
function rememberedGate(engine: EnginePort): () => Promise<string> {
  let known: string | null = null;
  return async () => {
    known ??= await engine.gate();
    return known;
  };
}

/** Records each grant that was revoked. It is revoked even if that cannot be recorded. */
function recordedRevocations(audit: AuditTrail, emit: Emit): (record: GrantRecord) => Promise<void> {
  return async (record) => {
    const { id, run, root, worker } = record;
    const what = "to" in record ? { to: record.to } : { directory: record.directory };
    const reason = "it was revoked by hand";
    try {
      await audit.append({ type: "grant_revoked", run, root, worker, grant: id, ...what, reason });
    } catch (error) {
      emit({ type: "trouble", run, root, parent: null, worker, attachments: [], detail: (error as Error).message });
    }
  };
}

/** Null if the project has none. By the project's folder, so that two projects may have repositories of the same name. */
function repositoriesOf(
  { dir, git: repos }: Project,
  { stateDir, engineEnv }: Pick<OpenOptions, "stateDir" | "engineEnv">,
  { ownerDir, liveDir, trail }: { ownerDir: string; liveDir: string; trail: AuditTrail },
): Repositories | null {
  if (repos === undefined) return null;
  return new Repositories({
    dir: projectPaths(stateDir, dir).git,
    repos,
    owner: basename(ownerDir),
    isLive: (owner) => existsSync(join(liveDir, owner)),
    env: engineEnv,
    onPushed: (pushed) => trail.append({ type: "pushed", ...pushed }),
  });
}
