import { homedir } from "node:os";
import { join } from "node:path";
import type { Question } from "../approval/approver.ts";
import { packageVersion } from "../declarations/place/package-root.ts";
import { loadProject } from "../declarations/project.ts";
import { Changesets } from "../operations/changesets.ts";
import { QueueMachines } from "../operations/fleets.ts";
import { reapCells } from "../operations/machine.ts";
import { Disposables } from "../platform/disposables.ts";
import { openTracing } from "../platform/tracing.ts";
import type { RunEvent } from "../run/model/events.ts";
import { tryHoldFile } from "../state/file-lock.ts";
import { lockOwner } from "../state/owner.ts";
import { EventLogs, StartedFleets as FleetRecord } from "../state/service/event-log.ts";
import { Tokens } from "../state/service/tokens.ts";
import { UploadFolder, uploadSpace } from "../state/service/upload-folder.ts";
import { makeClosedDir, makeStateDir, statePaths } from "../state/state-dir.ts";
import { routesOf } from "./api/routes.ts";
import {
  type Address,
  authenticated,
  ownNames,
  PageToken,
  Shares,
  SOCKET_CALLER,
  tellingForeign,
} from "./http/admission.ts";
import { hidingHostPaths } from "./http/answer.ts";
import { Refusals } from "./http/fault.ts";
import { type Listener, listen } from "./http/listener.ts";
import { type Handling, requestHandler, STREAM_LIMITS, upgradeHandler } from "./http/request-handler.ts";
import { Router } from "./http/router.ts";
import type { Log } from "./logging/log.ts";
import { type MeasuredProject, Metrics } from "./metrics/metrics.ts";
import { projectNames, ServedProject, ServedProjects } from "./model/served.ts";
import { loadPageFiles } from "./page/page-files.ts";
import { ServiceCi } from "./work/ci-runs.ts";
import { ServiceConversions } from "./work/conversions.ts";
import { OpenSessions } from "./work/open-sessions.ts";
import { ServiceFleets, StartedRuns } from "./work/started.ts";
import { Webhook, type WebhookOptions } from "./work/webhook.ts";

/** How long clients may take for the answers that are under way when the service is stopped. */
const GRACE_MS = 3000;
/** How soon the connections of a token that was removed end. */
const REMOVED_MS = 1000;
/** Of all clients, on the disk; a token has at most half. */
const MAX_UPLOAD_BYTES = 8 * 1024 ** 3;

export interface ServiceOptions {
  readonly address: Address;
  /** Names of the machine, beside its own, that clients may ask for. */
  readonly hosts: readonly string[];
  /** Folders of projects. */
  readonly projects: readonly string[];
  readonly stateDir: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Log;
  /** Make a token for the page, which ends with the service. */
  readonly withPageToken: boolean;
  /** Is told of questions that wait, and of ends of runs and fleets. */
  readonly webhook?: WebhookOptions;
}

export interface Service extends AsyncDisposable {
  readonly address: Address;
  /** Null if none was asked for, or if there is no page. */
  readonly pageToken: string | null;
  /** The names of the projects. */
  readonly projects: readonly string[];
}

/** Another service uses the state directory. */
export class ServiceRunningError extends Error {
  override readonly name = "ServiceRunningError";
}

/**
 * Serves projects over HTTP until it is disposed: runs are cancelled then, and fleets wait for the next service, which
 * continues them. So it does with those of a service that was killed.
 *
 * @throws DeclarationError, ListenError, ServiceRunningError, StateDirError
 */
export async function openService({ address, hosts, projects: dirs, ...machine }: ServiceOptions): Promise<Service> {
  const { stateDir, env, log } = machine;
  await makeStateDir(stateDir);
  const { service: dir } = statePaths(stateDir);
  await makeClosedDir(dir);
  await using opening = new Disposables();
  const lock = await tryHoldFile(join(dir, "lock"), lockOwner());
  if (lock === null)
    throw new ServiceRunningError(
      "another `corral serve` uses this state directory: stop it, or add the project to it",
    );
  opening.use(lock);
  const over = new AbortController();
  const logs = new EventLogs(stateDir);
  const metrics = opening.use(new Metrics(packageVersion()));
  const named = [...projectNames(await realDirs(dirs, env))];
  const hide = hidingHostPaths([
    ...named.map(([, path]) => ({ path, name: "PROJECT" })),
    { path: stateDir, name: "STATE" },
    { path: env.HOME ?? homedir(), name: "~" },
  ]);
  const webhook = machine.webhook === undefined ? null : new Webhook(machine.webhook, { log, over: over.signal });
  const runs = new StartedRuns({
    logs,
    log,
    over: over.signal,
    hide,
    onEnded({ run, worker, status, exitCode, durationMs, changeset }, project) {
      const data = { project, run, worker, status, exitCode, durationMs, changeset: changeset?.id ?? null };
      void webhook?.tell({ type: "run.ended", data });
    },
  });
  const opened = named.map(([name, dir]) => {
    const onWaiting = (approval: string, { worker, run, root, operations }: Question, timeoutMs: number): void => {
      log.info({ project: name, question: approval }, "a question waits");
      const data = { approval, project: name, worker, run, root, operations, timeoutMs };
      void webhook?.tell({ type: "question.waiting", data });
    };
    const emit = (event: RunEvent, of: MeasuredProject): void => {
      runs.see(event);
      metrics.see(event, of);
    };
    const shared = { machine: { stateDir, engineEnv: env }, emit, onWaiting };
    return opening.use(new ServedProject({ name, dir }, shared));
  });
  const projects = new ServedProjects(opened);
  const uploads = opening.use(await UploadFolder.make(stateDir));
  const space = await uploadSpace(MAX_UPLOAD_BYTES);
  const uploadShares = new Shares({ all: space, each: Math.ceil(space / 2) });
  const changesets = opening.use(
    await Changesets.open(stateDir, env, () => log.info("an interrupted application was finished")),
  );
  const fleets = new ServiceFleets({
    logs,
    record: new FleetRecord(stateDir),
    log,
    metrics,
    hide,
    over: over.signal,
    onEnded({ fleet, state, items, done, byStatus, durationMs }, of) {
      void webhook?.tell({ type: "fleet.ended", data: { ...of, fleet, state, items, done, byStatus, durationMs } });
    },
  });
  const sessions = new OpenSessions(log, over.signal);
  // Their files are on this machine, and no queue has their fleets.
  const local = { stateDir, engineEnv: { ...env, CORRAL_QUEUE: "" } };
  const converting = { machine: local, log, metrics, hide, over: over.signal };
  const conversions = opening.use(await ServiceConversions.open(converting));
  const ci = opening.use(
    await ServiceCi.open(
      { machine: { stateDir, engineEnv: env }, log, metrics, hide, over: over.signal },
      named.map(([, dir]) => dir),
    ),
  );
  const unended = await unendedOf(opened, fleets, log);
  await logs.prepare({ type: "interrupted" }, new Set([...unended.values()].flat()));
  const served = {
    stateDir,
    projects,
    changesets,
    runs,
    fleets,
    sessions,
    hide,
    conversions,
    ci,
    logs,
    uploads,
    uploadShares,
    metrics,
    machines: opening.use(new QueueMachines(stateDir, env)),
    over: over.signal,
  };
  const router = new Router(routesOf(served, env, packageVersion()));
  const tokens = new Tokens(stateDir);
  const page = await loadPageFiles();
  const pageToken = machine.withPageToken && page.has("/") && address.kind === "tcp" ? new PageToken() : null;
  const tracing = await openTracing();
  const refusals = new Refusals(log, (reason) => metrics.refused(reason));
  let handle: ReturnType<typeof requestHandler> | null = null;
  let upgrade: ReturnType<typeof upgradeHandler> | null = null;
  const listener: Listener = await listen(
    address,
    (request, response) => handle?.(request, response),
    refusals,
    (request, socket) => upgrade?.(request, socket),
  );
  opening.defer(() => listener.close(GRACE_MS));
  const handling: Handling = {
    router,
    page,
    hide,
    names: ownNames(listener.address, hosts),
    onForeign: tellingForeign(log),
    log,
    tracing,
    answered: (request) => metrics.request(request),
    authenticate: async (request) =>
      address.kind === "unix" ? SOCKET_CALLER : await authenticated(request, tokens, pageToken),
    known: (request, caller) => listener.known(request, caller),
    refusals,
    streams: new Shares(STREAM_LIMITS),
  };
  [handle, upgrade] = [requestHandler(handling), upgradeHandler(handling)];
  const removal = setInterval(() => void endRemoved([listener, handling.streams], tokens), REMOVED_MS).unref();
  opening.defer(() => clearInterval(removal));
  // After a service that was killed its containers are removed, and its fleets continue.
  void resume(unended, { fleets, conversions }, { stateDir, engineEnv: env }, log);
  const rest = opening.move();
  return {
    address: listener.address,
    pageToken: pageToken?.value ?? null,
    projects: opened.map(({ name }) => name),
    async [Symbol.asyncDispose]() {
      await using _ = rest;
      over.abort(new Error("the service is being stopped"));
      await Promise.all([
        listener.close(GRACE_MS),
        sessions.end(),
        runs.idle(),
        fleets.idle(),
        ci.idle(),
        conversions.idle(),
      ]);
    },
  };
}

/** Also what a token had begun to read before it was removed. */
async function endRemoved(all: readonly Pick<Shares, "endAllBut">[], tokens: Tokens): Promise<void> {
  // A file that cannot be read has no valid token.
  const valid = await tokens.ids().catch(() => new Set<string>());
  for (const one of all) one.endAllBut(valid);
}

type Unended = ReadonlyMap<ServedProject, readonly string[]>;

async function unendedOf(projects: readonly ServedProject[], fleets: ServiceFleets, log: Log): Promise<Unended> {
  const unended = new Map<ServedProject, readonly string[]>();
  for (const project of projects) {
    try {
      unended.set(project, await fleets.unended(project));
    } catch (error) {
      log.warn({ project: project.name, error: (error as Error).name }, "fleets of a project could not be looked for");
    }
  }
  return unended;
}

async function resume(
  unended: Unended,
  { fleets, conversions }: { readonly fleets: ServiceFleets; readonly conversions: ServiceConversions },
  machine: Parameters<typeof reapCells>[0],
  log: Log,
): Promise<void> {
  try {
    await reapCells(machine);
  } catch (error) {
    log.warn({ error: (error as Error).name }, "the Engine does not answer: runs will be refused until it does");
  }
  for (const [project, ids] of unended) await fleets.resume(project, ids);
  await conversions.removeLeft();
}

/** Each folder once. Their files are checked now, so that a service does not begin with projects that cannot run. */
async function realDirs(dirs: readonly string[], env: ServiceOptions["env"]): Promise<string[]> {
  const real = await Promise.all(dirs.map(async (dir) => (await loadProject(dir, env)).dir));
  return [...new Set(real)];
}
