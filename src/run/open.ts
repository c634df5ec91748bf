import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { type ApprovalMode, type Approver, approveAll, autoDeny, headless } from "../approval/approver.ts";
import { ruledApprover } from "../approval/rules.ts";
import { type AuditTrail, noTrail } from "../audit/trail.ts";
import { Repositories } from "../git/repositories.ts";
import { connect, type EngineConnection } from "../isolation/docker/connect.ts";
import { dockerDriver } from "../isolation/docker/driver.ts";
import { EngineUnavailableError } from "../isolation/docker/engine-unavailable.ts";
import { gateBinary } from "../isolation/docker/images/gate.ts";
import { ImageBuildError } from "../isolation/docker/images/progress.ts";
import { type Driver, EngineTrouble, type Reaped } from "../isolation/driver.ts";
import { makeOwnerDir, removeOwnerDir } from "../isolation/live-dir.ts";
import { currentOwner, loadSealKey, type Owner } from "../isolation/owner.ts";
import { type RefusedSources, refusedSourcesFor } from "../isolation/refused-sources.ts";
import { loadPolicy } from "../policy/policy.ts";
import { loadSeccompProfile } from "../policy/seccomp.ts";
import { loadProject, type Project } from "../project/project.ts";
import type { Policy } from "../sandbox/policy.ts";
import { finishInterrupted, type ToldFinish } from "./changes/finish-interrupted.ts";
import { changesetStore, intoProject, noChangesets } from "./changes/into-project.ts";
import type { RunEnvironment } from "./environment.ts";
import type { Emit } from "./events.ts";
import { absentEngine } from "./explain/absent-engine.ts";
import { rememberingImages } from "./explain/remembered-images.ts";
import { GrantLedger } from "./grants/ledger.ts";
import { recordedRevocations } from "./grants/recorded-revocations.ts";
import { RecordedApprover } from "./recorded/approver.ts";
import { recordedEmit } from "./recorded/emit.ts";
import { openTrail } from "./recorded/open-trail.ts";

export interface OpenOptions {
  readonly projectDir: string;
  /** Where Corral keeps its own: the seal, the gate, sockets. Absolute. */
  readonly stateDir: string;
  /** DOCKER_HOST, DOCKER_CONTEXT and their kind, and HOME: where the Engine is; and what `git.repos.*.credentials` names. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
  readonly emit?: Emit;
  /** In place of the project's approval mode. */
  readonly approvalMode?: ApprovalMode;
  /** Whom the mode `interactive` asks; absent: nobody is there. */
  readonly person?: Approver;
  /** False: what is staged is copied, also where an overlay is to be had. */
  readonly overlays?: boolean;
  /** A program that decides in the person's place, such as a `callbackApprover`. */
  readonly approver?: Approver;
}

/** A project, ready to run its workers. Opening removes what dead orchestrators left behind. */
export interface Corral extends AsyncDisposable {
  readonly environment: RunEnvironment;
  readonly project: Project;
  readonly connection: EngineConnection;
  /** Where Corral keeps its own. */
  readonly stateDir: string;
  readonly reaped: Reaped;
  /** Why not all of it could be removed: for a person to see, and no reason not to run. */
  readonly reapTrouble: string | null;
}

/** A project to look at and not to run: it opens without an Engine as well. */
export interface Preview {
  readonly environment: RunEnvironment;
  readonly project: Project;
  readonly approvalMode: ApprovalMode;
  /** Why no plan can be made; null where the Engine is there and has the base image. */
  readonly unavailable: string | null;
}

/** An Engine, and the driver that makes cells there in this process's name. */
export interface OpenedEngine {
  readonly connection: EngineConnection;
  readonly driver: Driver;
  readonly owner: Owner;
  /** Where orchestrators have their directories, each its own. */
  readonly liveDir: string;
}

/**
 * Brings together a project, an Engine and this process's own place on the host.
 *
 * @throws DeclarationError for a project with mistakes, EngineUnavailableError where no Engine answers,
 *   ImageBuildError where the images were not built.
 */
export async function openCorral(options: OpenOptions): Promise<Corral> {
  return await openProject(await loadProject(options.projectDir), options);
}

/** The same for a project that is loaded already, and for an Engine that may be on its way. */
export async function openProject(
  project: Project,
  options: Omit<OpenOptions, "projectDir">,
  engine: Promise<OpenedEngine> = openEngine(options),
): Promise<Corral> {
  const { connection, driver, owner, liveDir } = await engine;
  const [ownerDir, trail] = await Promise.all([makeOwnerDir(liveDir, owner), openTrail(options.stateDir, project.dir)]);
  const store = changesetStore(options.stateDir, owner);
  const git = repositoriesOf(project, options, { ownerDir, liveDir, trail });
  const around = { emit: options.emit ?? (() => {}), now: () => performance.now() };
  const grants = new GrantLedger(ownerDir, recordedRevocations(trail, around.emit));
  const close = async (): Promise<void> => {
    await git?.[Symbol.asyncDispose]();
    await grants[Symbol.asyncDispose]();
    await Promise.all([trail.close(), removeOwnerDir(ownerDir)]);
  };
  try {
    const policyNamed = policiesOf(project);
    const [{ reaped, reapTrouble }, gate, , finished] = await Promise.all([
      reapedAtOpening(driver),
      gateBinary({ docker: connection.docker, stateDir: options.stateDir }),
      policiesExist(project, policyNamed),
      // What a process that is gone had begun to apply is half done only until now.
      finishInterrupted(store, options.stateDir),
    ]);
    for (const told of finished) tellFinish(told, around.emit);
    const environment: RunEnvironment = {
      project,
      policyNamed,
      driver,
      approver: new RecordedApprover(approverFor(project, options), trail, around),
      audit: trail,
      refusedSources: refusedSourcesOn(connection, options.stateDir),
      grants,
      changesets: intoProject(store, trail),
      overlays: options.overlays ?? true,
      ...(git === null ? {} : { git }),
      gate,
      ownerDir,
      ...around,
      emit: recordedEmit(around.emit, trail),
    };
    const { stateDir } = options;
    return { environment, project, connection, stateDir, reaped, reapTrouble, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** One that cannot be finished is told by `corral changes`, where something can be done about it. */
function tellFinish({ finished, text }: ToldFinish, emit: Emit): void {
  if (!finished.ok) return;
  const { run, root, worker } = finished.changeset;
  emit({ type: "trouble", run, root, parent: null, worker, attachments: [], detail: text });
}

/** For `explain` and `check`, which show what would be refused whether or not there is an Engine. */
export async function openPreview(
  project: Project,
  options: Pick<OpenOptions, "stateDir" | "engineEnv" | "approvalMode">,
): Promise<Preview> {
  const approvalMode = options.approvalMode ?? project.approval.mode;
  const environment = {
    project,
    policyNamed: policiesOf(project),
    approver: approverFor(project, { approvalMode }),
    audit: noTrail,
    ownerDir: "",
    // Nothing runs, so nothing is granted, and no directory is made.
    grants: new GrantLedger("", async () => {}),
    changesets: noChangesets,
    overlays: false,
    emit: () => {},
    now: () => performance.now(),
  };
  try {
    const { connection, driver } = await openEngine(options);
    const gate = await gateBinary({ docker: connection.docker, stateDir: options.stateDir });
    const refusedSources = refusedSourcesOn(connection, options.stateDir);
    return {
      environment: { ...environment, driver: rememberingImages(driver), refusedSources, gate },
      project,
      approvalMode,
      unavailable: null,
    };
  } catch (error) {
    if (!(error instanceof EngineUnavailableError || error instanceof ImageBuildError)) throw error;
    const refusedSources = refusedSourcesFor({ engineData: [], engineSockets: [], state: [options.stateDir] });
    return {
      environment: { ...environment, driver: absentEngine(error), refusedSources, gate: "" },
      project,
      approvalMode,
      unavailable: error.message,
    };
  }
}

/** The Engine and its driver, for what needs no project: `ps`, `reap`, `doctor`. */
export async function openEngine({
  stateDir,
  engineEnv,
}: Pick<OpenOptions, "stateDir" | "engineEnv">): Promise<OpenedEngine> {
  await mkdir(dirname(stateDir), { recursive: true });
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  await refuseForeignState(stateDir);
  const [connection, sealKey, seccomp] = await Promise.all([
    connect(engineEnv),
    loadSealKey(stateDir),
    loadSeccompProfile(),
  ]);
  const owner = currentOwner();
  const liveDir = join(stateDir, "live");
  const driver = dockerDriver({
    docker: connection.docker,
    maker: { owner, sealKey },
    seccomp: { corral: seccomp },
    liveDir,
  });
  return { connection, driver, owner, liveDir };
}

/** Whoever can write there chooses the key of the seals, the gate of every cell, and code that runs here. */
async function refuseForeignState(stateDir: string): Promise<void> {
  const { uid, mode } = await stat(stateDir);
  if (uid !== process.geteuid?.() || (mode & 0o022) !== 0)
    throw new EngineTrouble(`the state directory ${stateDir} can be written by others; use one of your own`);
}

function refusedSourcesOn({ dataDirs, socketPath }: EngineConnection, stateDir: string): RefusedSources {
  return refusedSourcesFor({
    engineData: dataDirs,
    engineSockets: socketPath === null ? [] : [socketPath],
    state: [stateDir],
  });
}

/** Each policy is read once, for all runs of a project to agree. */
function policiesOf(project: Project): (name: string) => Promise<Policy> {
  const dirs = project.policiesDir === null ? [] : [project.policiesDir];
  const loaded = new Map<string, Promise<Policy>>();
  return (name) => {
    const policy = loaded.get(name) ?? loadPolicy(name, { dirs });
    loaded.set(name, policy);
    return policy;
  };
}

/** The project's rules come first, whatever the mode; what they do not speak of is the mode's to decide. */
function approverFor(
  { approval }: Project,
  { approvalMode = approval.mode, approver, person }: Pick<OpenOptions, "approvalMode" | "approver" | "person">,
): Approver {
  const byMode = { interactive: approver ?? person ?? headless, approve_all: approveAll, auto_deny: autoDeny };
  return ruledApprover(approval.rules, byMode[approvalMode]);
}

/** By the project's folder, so that two projects may have repositories of the same name. */
function repositoriesOf(
  { dir, git: repos }: Project,
  { stateDir, engineEnv }: Pick<OpenOptions, "stateDir" | "engineEnv">,
  { ownerDir, liveDir, trail }: { ownerDir: string; liveDir: string; trail: AuditTrail },
): Repositories | null {
  if (repos === undefined) return null;
  const project = createHash("sha256").update(dir).digest("hex").slice(0, 16);
  return new Repositories({
    dir: join(stateDir, "git", project),
    repos,
    owner: basename(ownerDir),
    isLive: (owner) => existsSync(join(liveDir, owner)),
    env: engineEnv,
    onPushed: (pushed) => trail.append({ type: "pushed", ...pushed }),
  });
}

async function reapedAtOpening(driver: Driver): Promise<Pick<Corral, "reaped" | "reapTrouble">> {
  try {
    return { reaped: await driver.reap(), reapTrouble: null };
  } catch (error) {
    if (!(error instanceof EngineTrouble)) throw error;
    return { reaped: { cells: [], volumes: [], directories: [] }, reapTrouble: error.message };
  }
}

/** Found out before anything runs: a call that names a policy which does not exist would fail in the middle of its tree. */
async function policiesExist(project: Project, policyNamed: RunEnvironment["policyNamed"]): Promise<void> {
  const named = [...project.workers.values()].flatMap(({ policyName }) => policyName ?? []);
  await Promise.all([project.policyName, ...new Set(named)].map(policyNamed));
}
