import { TranscriptFolder } from "../../agent/transcript-folder.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import { makeZoneFolders } from "../../declarations/place/zone-folder.ts";
import { loadProject, type Project } from "../../declarations/project.ts";
import { openEngine } from "../../isolation/open-engine.ts";
import { type Driver, EngineTrouble, type Reaped } from "../../isolation/port/driver.ts";
import { DriverUnavailableError, type EnginePort } from "../../isolation/port/engine.ts";
import { refusedSourcesFor } from "../../isolation/sources/refused-sources.ts";
import { openTracing } from "../../platform/tracing.ts";
import { namedSecrets } from "../../secrets/read-secret.ts";
import { Masking } from "../../secrets/redactor.ts";
import { makeOwnerDir, removeOwnerDir } from "../../state/live-dir.ts";
import { currentOwner } from "../../state/owner.ts";
import { statePaths } from "../../state/state-paths.ts";
import { finishInterrupted, recordingApplied, type ToldFinish } from "../changes/finish-interrupted.ts";
import { changesetStore, intoProject } from "../changes/into-project.ts";
import { GrantLedger } from "../grants/ledger.ts";
import { preparingInCells } from "../images/prepare-in-cell.ts";
import { makingImages } from "../images/worker-images.ts";
import type { RunEnvironment } from "../model/environment.ts";
import type { Emit } from "../model/events.ts";
import type { GrantRecord } from "../model/grant.ts";
import { SchemaChecks } from "../model/schema-check.ts";
import { RecordedApprover } from "../recorded/approver.ts";
import { recordedEmit } from "../recorded/emit.ts";
import { maskedApprover, maskedEmit, maskedTrail } from "../recorded/masked.ts";
import { openTrail } from "../recorded/open-trail.ts";
import { tracedEmit } from "../recorded/spans.ts";
import { watchOwnDeath } from "./death-watch.ts";
import { openHistory } from "./history.ts";
import { imagePlaceOf } from "./image-place.ts";
import { networkHostOf } from "./network-host.ts";
import { approverFor, isContained, type OpenOptions, outerProcessFor } from "./options.ts";
import { policiesExist, policiesOf } from "./policies.ts";
import { questionBoard, sharedApprover } from "./question-board.ts";
import { repositoriesOf } from "./repositories.ts";

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
  const engine = await opening;
  const driving = await engine.driving("runs");
  if (driving.driver === null) throw new DriverUnavailableError(driving.why);
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
  const grants = new GrantLedger(ownerDir, recordedRevocations(trail, around.emit));
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
    const [{ reaped, reapTrouble }, gate, , finished] = await Promise.all([
      reapedAtOpening(driver),
      engine.gate(),
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
    const prepare = preparingInCells(() => environment);
    const environment: RunEnvironment = {
      project,
      projectDir: project.dir,
      policyNamed,
      driver,
      itemCells,
      images: makingImages(imagePlaceOf(project, engine.images, options, { ownerDir, prepare })),
      approver: new RecordedApprover(maskedApprover(approver, masking), audit, around),
      audit,
      masking,
      secretInside: namedSecrets(project.secrets, options.engineEnv),
      refusedSources: refusedSourcesFor(options.stateDir, engine.hostPlaces, outerProcessFor(options)),
      grants,
      history,
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
    const { stateDir } = options;
    return { environment, project, stateDir, reaped, reapTrouble, [Symbol.asyncDispose]: close };
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

async function reapedAtOpening(driver: Driver): Promise<Pick<Corral, "reaped" | "reapTrouble">> {
  try {
    return { reaped: await driver.reap(), reapTrouble: null };
  } catch (error) {
    if (!(error instanceof EngineTrouble)) throw error;
    return { reaped: { cells: [], volumes: [], directories: [] }, reapTrouble: error.message };
  }
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
