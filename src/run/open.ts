import { mkdir, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type ApprovalMode, type Approver, approveAll, autoDeny, headless } from "../approval/approver.ts";
import { engineDataDirs } from "../isolation/docker/capabilities.ts";
import { connect, type EngineConnection } from "../isolation/docker/connect.ts";
import { dockerDriver } from "../isolation/docker/driver.ts";
import { gateBinary } from "../isolation/docker/images/gate.ts";
import type { Reaped } from "../isolation/driver.ts";
import { makeOwnerDir } from "../isolation/live-dir.ts";
import { currentOwner, loadSealKey } from "../isolation/owner.ts";
import { refusedSourcesFor } from "../isolation/refused-sources.ts";
import { loadPolicy } from "../policy/policy.ts";
import { loadSeccompProfile } from "../policy/seccomp.ts";
import { loadProject, type Project } from "../project/project.ts";
import type { Policy } from "../sandbox/policy.ts";
import type { RunEnvironment } from "./environment.ts";
import type { Emit } from "./events.ts";

export interface OpenOptions {
  readonly projectDir: string;
  /** Where Corral keeps its own: the seal, the gate, sockets. Absolute. */
  readonly stateDir: string;
  /** DOCKER_HOST, DOCKER_CONTEXT and their kind, and HOME: where the Engine is. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
  readonly emit?: Emit;
  /** In place of the project's approval mode. */
  readonly approvalMode?: ApprovalMode;
  /** Whom the mode `interactive` asks; absent: nobody is there. */
  readonly person?: Approver;
}

/** A project, ready to run its workers. Opening removes what dead orchestrators left behind. */
export interface Corral extends AsyncDisposable {
  readonly environment: RunEnvironment;
  readonly project: Project;
  readonly connection: EngineConnection;
  readonly reaped: Reaped;
}

/**
 * Brings together a project, an Engine and this process's own place on the host.
 *
 * @throws DeclarationError for a project with mistakes, EngineUnavailableError where no Engine answers,
 *   ImageBuildError where the images were not built.
 */
export async function openCorral(options: OpenOptions): Promise<Corral> {
  const project = await loadProject(options.projectDir);
  const { connection, driver, ownerDir } = await openEngine(options);
  const [reaped, gate, dataDirs] = await Promise.all([
    driver.reap(),
    gateBinary({ docker: connection.docker, stateDir: options.stateDir }),
    engineDataDirs(connection.docker),
  ]);
  const environment: RunEnvironment = {
    project,
    policyNamed: policiesOf(project),
    driver,
    approver: approverFor(options.approvalMode ?? project.approval.mode, options.person),
    refusedSources: refusedSourcesFor({
      engineData: dataDirs,
      engineSockets: connection.socketPath === null ? [] : [connection.socketPath],
      state: [options.stateDir],
    }),
    gate,
    ownerDir,
    emit: options.emit ?? (() => {}),
    now: () => performance.now(),
  };
  return {
    environment,
    project,
    connection,
    reaped,
    [Symbol.asyncDispose]: () => rm(ownerDir, { recursive: true, force: true }),
  };
}

/** The Engine and its driver, for what needs no project: `ps`, `reap`, `doctor`. */
export async function openEngine({ stateDir, engineEnv }: Pick<OpenOptions, "stateDir" | "engineEnv">) {
  await mkdir(dirname(stateDir), { recursive: true });
  await mkdir(stateDir, { recursive: true, mode: 0o700 });
  const [connection, sealKey, seccomp] = await Promise.all([
    connect(engineEnv),
    loadSealKey(stateDir),
    loadSeccompProfile(),
  ]);
  const owner = currentOwner();
  const liveDir = join(stateDir, "live");
  const ownerDir = await makeOwnerDir(liveDir, owner);
  const driver = dockerDriver({
    docker: connection.docker,
    maker: { owner, sealKey },
    seccomp: { corral: seccomp },
    liveDir,
  });
  return { connection, driver, ownerDir };
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

function approverFor(mode: ApprovalMode, person: Approver | undefined): Approver {
  if (mode === "approve_all") return approveAll;
  return mode === "auto_deny" ? autoDeny : (person ?? headless);
}
