import type { IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { RunRecord } from "../../history/run-record.ts";
import type { Changesets } from "../../operations/changesets.ts";
import { findFleet, type ListedFleet, type QueueMachines } from "../../operations/fleets.ts";
import { RequestError } from "../../operations/request-error.ts";
import { showRun } from "../../operations/runs.ts";
import { EventIdError, type EventLogs } from "../../state/service/event-log.ts";
import type { UploadFolder } from "../../state/service/upload-folder.ts";
import type { Shares } from "../http/admission.ts";
import { eventStream, HEARTBEAT_MS, type HidePaths, lastEventId } from "../http/answer.ts";
import { ServiceFault } from "../http/fault.ts";
import { permits, type Sent, type ServiceCaller } from "../http/router.ts";
import type { Metrics } from "../metrics/metrics.ts";
import type { CiRuns, Conversions, Fleets, Runs, ServedProject, ServedProjects, Sessions } from "../model/served.ts";

/* Ids of other projects of the same state directory are unknown here, as if there were no such thing. */

/** @throws RequestError UNKNOWN_RUN */
export async function ownedRun(
  projects: ServedProjects,
  id: string,
): Promise<{ readonly project: ServedProject; readonly record: RunRecord }> {
  for (const project of projects.all) {
    const record = await showRun(project.place, id).catch(unless("UNKNOWN_RUN"));
    if (record !== null && record.project === project.dir) return { project, record };
  }
  throw new RequestError("UNKNOWN_RUN", id, `there is no run ${id}`);
}

/** @throws RequestError UNKNOWN_FLEET */
export async function ownedFleet(
  projects: ServedProjects,
  id: string,
): Promise<{ readonly project: ServedProject; readonly fleet: ListedFleet }> {
  for (const project of projects.all) {
    const fleet = await findFleet(project.place, id).catch(unless("UNKNOWN_FLEET"));
    if (fleet !== null) return { project, fleet };
  }
  throw new RequestError("UNKNOWN_FLEET", id, `there is no fleet ${id}`);
}

function unless(code: RequestError["code"]): (error: unknown) => null {
  return (error) => {
    if (error instanceof RequestError && error.code === code) return null;
    throw error;
  };
}

/** @throws ServiceFault */
export function refuseStopping(over: AbortSignal): void {
  if (over.aborted) throw new ServiceFault(503, "STOPPING", "the service is being stopped");
}

/** A policy decides how weak a container may be. @throws ServiceFault */
export function refusePolicy(policy: string | undefined, caller: ServiceCaller): void {
  if (policy !== undefined && !permits(caller, "admin"))
    throw new ServiceFault(403, "FORBIDDEN", "another policy than the project's needs a token with the role admin");
}

/** A file of results to be saved: nothing of a stranger's file is shown by a browser as what it is. */
export function fileToSave(
  path: string,
  { bytes, content }: { readonly bytes: number; readonly content: Sent["pieces"] },
): Sent {
  const name = path.slice(path.lastIndexOf("/") + 1).replaceAll(/[^\w.-]/g, "_");
  const headers = { "content-disposition": `attachment; filename="${name}"`, "content-length": String(bytes) };
  return { headers, pieces: content };
}

/** Until something has ended, the client has gone, or so many seconds have passed. */
export async function waited(ending: Promise<void>, seconds: number, gone: AbortSignal): Promise<void> {
  const timer = new AbortController();
  const signal = AbortSignal.any([gone, timer.signal]);
  await Promise.race([ending.catch(() => {}), sleep(seconds * 1000, undefined, { signal }).catch(() => {})]);
  timer.abort();
}

/** The events of a run or a fleet, after the last one that the client has. It ends with the last. Null: there are no more. */
export async function eventsOf(
  id: string,
  logs: EventLogs,
  {
    request,
    gone,
    over,
  }: { readonly request: IncomingMessage; readonly gone: AbortSignal; readonly over: AbortSignal },
): Promise<Sent | null> {
  if (!logs.has(id))
    throw new ServiceFault(409, "NO_EVENTS", "the service did not start it, or keeps its events no more");
  const from = lastEventId(request.headers["last-event-id"]);
  if (from === null) throw unknownEvent();
  const lines = logs.read(id, from, AbortSignal.any([gone, over]), HEARTBEAT_MS);
  // The first lines are looked for before the answer begins, which can then still say that the id is wrong.
  const first = await lines.next().catch((error: unknown) => {
    throw error instanceof EventIdError ? unknownEvent() : error;
  });
  if (first.done) return null;
  async function* all() {
    if (!first.done) yield first.value;
    yield* lines;
  }
  return { pieces: eventStream(all()) };
}

function unknownEvent(): ServiceFault {
  return new ServiceFault(400, "WRONG_REQUEST", "Last-Event-ID is the id of no event of this stream");
}

/** All that the routes use. */
export interface Served {
  readonly stateDir: string;
  readonly projects: ServedProjects;
  readonly changesets: Changesets;
  readonly runs: Runs;
  readonly fleets: Fleets;
  readonly sessions: Sessions;
  readonly conversions: Conversions;
  readonly ci: CiRuns;
  readonly logs: EventLogs;
  readonly uploads: UploadFolder;
  /** Bytes of uploads on the disk. */
  readonly uploadShares: Shares;
  readonly metrics: Metrics;
  readonly machines: QueueMachines;
  readonly hide: HidePaths;
  /** Aborted when the service is being stopped. */
  readonly over: AbortSignal;
}
