import { join } from "node:path";
import { z } from "zod";
import { examine, parseJson } from "../json/parse-json.ts";
import { CONTRACT } from "../operations/contract/table.ts";
import type { RunEvent } from "../run/model/events.ts";
import { announcedSessions, announceSession, makeOwnerDir, removeOwnerDir } from "../state/live-dir.ts";
import { currentOwner } from "../state/owner.ts";
import { makeStateDir, statePaths } from "../state/state-dir.ts";
import { present } from "../text/present.ts";
import { portHandlers, sessionHandlers, snapshotHandlers } from "./api/sessions.ts";
import { ownNames, Shares, SOCKET_CALLER } from "./http/admission.ts";
import { hidingHostPaths } from "./http/answer.ts";
import { Refusals } from "./http/fault.ts";
import { listen } from "./http/listener.ts";
import { type Handling, requestHandler, STREAM_LIMITS, upgradeHandler } from "./http/request-handler.ts";
import { type Route, Router } from "./http/router.ts";
import type { Log } from "./logging/log.ts";
import { type IdleTimes, projectNames, ServedProject, ServedProjects } from "./model/served.ts";
import { OpenSessions } from "./work/open-sessions.ts";

/** How long clients may take for the answers that are under way at the end. */
const GRACE_MS = 3000;
const SOCKET = "session";

/** A session that a process of Corral's own holds. The directory of its process ends with that, also by `kill -9`. */
const heldSession = z.object({
  name: z.string(),
  id: z.string(),
  worker: z.string(),
  project: z.string(),
  openedAt: z.string(),
  pid: z.int(),
});

export type HeldSession = z.output<typeof heldSession> & {
  /** For a client: `unix:/PATH`. */
  readonly address: string;
};

export interface HoldRequest {
  readonly dir: string;
  readonly worker: string;
  readonly policy: string | null;
  /** A snapshot to go on from. */
  readonly from?: string;
  /** That can be connected to, beside those of the worker. */
  readonly ports: readonly number[];
  readonly name: string;
  readonly idle: IdleTimes;
  readonly stateDir: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly log: Log;
  readonly emit: (event: RunEvent) => void;
}

/** Opens a session, and serves its operations on a socket that only this user can open. Ends with the session. */
export async function holdSession(
  request: HoldRequest,
  signal: AbortSignal,
  opened: (held: HeldSession) => void,
): Promise<void> {
  const { dir, worker, policy, from, ports, name, idle, stateDir, env, log, emit } = request;
  await makeStateDir(stateDir);
  const owner = await makeOwnerDir(statePaths(stateDir).live, currentOwner());
  const over = new AbortController();
  const [[projectName = "project"] = []] = projectNames([dir]);
  const shared = { machine: { stateDir, engineEnv: env }, emit, onWaiting: () => log.info("a question waits") };
  await using project = new ServedProject({ name: projectName, dir }, shared);
  const sessions = new OpenSessions(log, over.signal, idle);
  try {
    const shown = await sessions.open(project, worker, { policy, name, ...present({ from }) });
    await sessions.within(shown.id, async (session) => session.ports.allow(ports));
    const refusals = new Refusals(log, () => {});
    const address = { kind: "unix", path: join(owner, SOCKET) } as const;
    const routes = routesOf({ projects: new ServedProjects([project]), sessions, over: over.signal });
    const handling: Handling = {
      router: new Router(routes),
      page: new Map(),
      hide: hidingHostPaths([]),
      names: ownNames(address, []),
      onForeign: () => {},
      log,
      tracing: null,
      answered: () => {},
      authenticate: async () => SOCKET_CALLER,
      known: () => true,
      refusals,
      streams: new Shares(STREAM_LIMITS),
    };
    const listener = await listen(address, requestHandler(handling), refusals, upgradeHandler(handling));
    const { id, openedAt } = shown;
    const about = { name, id, worker, project: dir, openedAt, pid: process.pid };
    await announceSession(owner, about);
    opened({ ...about, address: `unix:${address.path}` });
    const stopped = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => stopped.resolve(), { once: true });
    if (signal.aborted) stopped.resolve();
    await Promise.race([sessions.closed(id), stopped.promise]);
    await listener.close(GRACE_MS);
  } finally {
    over.abort(new Error("the session is being stopped"));
    await sessions.end();
    await removeOwnerDir(owner);
  }
}

function routesOf(served: Parameters<typeof sessionHandlers>[0]): Route[] {
  const handlers: Readonly<Record<string, unknown>> = {
    ...sessionHandlers(served),
    ...portHandlers(served),
    ...snapshotHandlers(served),
  };
  return Object.values(CONTRACT).flatMap((operation) => {
    const handle = operation.name === "sessions.open" ? undefined : handlers[operation.name];
    return handle === undefined ? [] : [{ ...operation, handle: handle as Route["handle"] }];
  });
}

/** Those of living processes of this user, the oldest first. */
export async function heldSessions(stateDir: string): Promise<HeldSession[]> {
  const announced = await announcedSessions(statePaths(stateDir).live, currentOwner());
  const found = announced.map(({ dir, rawAbout }) => {
    const parsed = parseJson(rawAbout);
    const about = parsed.ok ? examine(heldSession, parsed.value) : null;
    return about?.success ? [{ ...about.data, address: `unix:${join(dir, SOCKET)}` }] : [];
  });
  return found.flat().toSorted((a, b) => (a.openedAt < b.openedAt ? -1 : 1));
}
