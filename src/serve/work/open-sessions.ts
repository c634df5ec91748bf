import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { SESSION_INPUT_BYTES } from "../../operations/contract/sessions.ts";
import type { AnswerOf } from "../../operations/contract/table.ts";
import { refusedError } from "../../operations/request-error.ts";
import { workerNamed } from "../../operations/workers.ts";
import { MAX_TIMER_MS } from "../../platform/within.ts";
import type { SettledChanges } from "../../run/changes/settled-run.ts";
import { type OpenedSession, openSession } from "../../run/open-session.ts";
import { describedFor, usefulTools } from "../../run/session/offered-tools.ts";
import type { Session } from "../../run/session/session.ts";
import { present } from "../../text/present.ts";
import { inputSchemaOf, type ToolResult } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";
import { ServiceFault } from "../http/fault.ts";
import type { Log } from "../logging/log.ts";
import type { IdleTimes, ServedProject, SessionOrder, Sessions } from "../model/served.ts";

/** Each may have a container. */
const MAX_SESSIONS = 64;
const OF_SERVICE: IdleTimes = { pauseMs: 10 * 60_000, endMs: 30 * 60_000 };
/** Calls of one session at once. */
const MAX_CALLS = 64;

type ShownSession = AnswerOf<"sessions.show">;
type ShownTool = AnswerOf<"sessions.tools">["tools"][number];
type Open = Extract<OpenedSession, { ok: true }>;

interface Kept {
  readonly shown: ShownSession;
  readonly tools: readonly ShownTool[];
  readonly session: Open;
  readonly idle: IdleTimes;
  readonly close: () => void;
  readonly closed: Promise<void>;
  calls: number;
  /** Calls that are no use of it. */
  looks: number;
  timer: NodeJS.Timeout | undefined;
  /** It is paused because it was not used; settles when it is. */
  asleep: Promise<unknown> | null;
}

/** The sandboxes that clients use by tools. */
export class OpenSessions implements Sessions {
  readonly #log: Log;
  readonly #over: AbortSignal;
  readonly #idle: IdleTimes;
  readonly #sessions = new Map<string, Kept>();
  readonly #opening = new Set<SessionOrder>();

  constructor(log: Log, over: AbortSignal, idle = OF_SERVICE) {
    this.#log = log;
    this.#over = over;
    this.#idle = idle;
  }

  get all(): readonly ShownSession[] {
    return [...this.#sessions.values()].map(shownNow);
  }

  async open(project: ServedProject, workerName: string, order: SessionOrder): Promise<ShownSession> {
    const { policy, from, name } = order;
    const idle = idleOf(this.#idle, order.idle);
    if (name !== undefined && [...this.all, ...this.#opening].some((other) => other.name === name))
      throw new ServiceFault(409, "SESSION_THERE", `a session ${name} is open already`);
    if (this.#sessions.size + this.#opening.size >= MAX_SESSIONS)
      throw new ServiceFault(503, "TOO_MANY", `${MAX_SESSIONS} sessions are open already`);
    this.#opening.add(order);
    const opened = Promise.withResolvers<ShownSession>();
    const closing = Promise.withResolvers<void>();
    // The project stays open as long as the session is.
    const closed = project.use(async (corral) => {
      const worker = workerNamed(workerName, corral.project);
      const how = present({ policy: policy ?? undefined, from, name });
      const session = await openSession({ worker, keepsLast: true, signal: this.#over, ...how }, corral.environment);
      if (!session.ok) throw refusedError("WORKER_REFUSED", worker.name, session.violations);
      const openedAt = new Date().toISOString();
      const { run: id } = session;
      const names = usefulTools(worker);
      const called = { id, name: name ?? null, project: project.name, worker: worker.name };
      const shown = { ...called, tools: names, openedAt, isPaused: false };
      const tools = names.flatMap((name) => shownTool(name, worker, corral.project.workers));
      const kept: Kept = {
        shown,
        tools,
        session,
        idle,
        close: closing.resolve,
        closed: ended(),
        calls: 0,
        looks: 0,
        timer: undefined,
        asleep: null,
      };
      this.#sessions.set(id, kept);
      this.#rest(kept);
      opened.resolve(shown);
      try {
        await closing.promise;
      } finally {
        clearTimeout(kept.timer);
        this.#sessions.delete(id);
        await session[Symbol.asyncDispose]();
        this.#log.info({ run: id, worker: worker.name }, "session ended");
      }
    });
    const ended = (): Promise<void> => closed;
    closed.catch((error: Error) => opened.reject(error));
    try {
      return await opened.promise;
    } finally {
      this.#opening.delete(order);
    }
  }

  /** Settles when it has ended, for whichever reason. Never rejects. */
  async closed(id: string): Promise<void> {
    await this.#sessions.get(id)?.closed.catch(() => {});
  }

  find(id: string): ShownSession {
    return shownNow(this.#kept(id));
  }

  toolsOf(id: string): readonly ShownTool[] {
    return this.#kept(id).tools;
  }

  async runTool(id: string, tool: string, input: unknown, signal: AbortSignal): Promise<ToolResult> {
    return await this.within(id, (session) => session.runTool(tool, input, signal));
  }

  async look<T>(id: string, act: (session: Session) => Promise<T>): Promise<T> {
    const kept = this.#kept(id);
    refuseMore(kept.looks);
    kept.looks += 1;
    try {
      return await act(kept.session.session);
    } finally {
      kept.looks -= 1;
    }
  }

  async within<T>(id: string, act: (session: Session) => Promise<T>): Promise<T> {
    const kept = this.#kept(id);
    refuseMore(kept.calls);
    kept.calls += 1;
    clearTimeout(kept.timer);
    try {
      await this.#wake(kept);
      return await act(kept.session.session);
    } finally {
      kept.calls -= 1;
      if (kept.calls === 0) this.#rest(kept);
    }
  }

  async finish(
    id: string,
    { discards, asks }: { readonly discards: boolean; readonly asks: boolean },
  ): Promise<SettledChanges | null> {
    const kept = this.#kept(id);
    try {
      if (!discards) return await kept.session.finish({ asks });
      await kept.session.discard();
      return null;
    } finally {
      kept.close();
      await kept.closed;
    }
  }

  /** Ends all. What they wrote waits. */
  async end(): Promise<void> {
    const all = [...this.#sessions.values()];
    for (const { close } of all) close();
    await Promise.allSettled(all.map(({ closed }) => closed));
  }

  #rest(kept: Kept): void {
    clearTimeout(kept.timer);
    const { pauseMs, endMs } = kept.idle;
    const isFirst = pauseMs !== null && (endMs === null || pauseMs < endMs);
    if (isFirst) kept.timer = later(() => this.#sleep(kept), pauseMs);
    else if (endMs !== null) kept.timer = later(kept.close, endMs);
  }

  #sleep(kept: Kept): void {
    const { pauseMs, endMs } = kept.idle;
    const { session } = kept.session;
    // Who has paused it resumes it.
    if (!session.isPaused) kept.asleep = session.pause(true).catch(() => {});
    if (endMs !== null) kept.timer = later(kept.close, endMs - (pauseMs ?? 0));
  }

  async #wake(kept: Kept): Promise<void> {
    if (kept.asleep === null) return;
    const { asleep } = kept;
    await asleep;
    // Of those who wait together, one wakes it.
    if (kept.asleep !== asleep) return;
    kept.asleep = null;
    await kept.session.session.pause(false);
  }

  #kept(id: string): Kept {
    const kept = this.#sessions.get(id);
    if (kept === undefined) throw new ServiceFault(404, "UNKNOWN_SESSION", "there is no such session, or it has ended");
    return kept;
  }
}

/** @throws ServiceFault */
function refuseMore(calls: number): void {
  if (calls >= MAX_CALLS) throw new ServiceFault(503, "TOO_MANY", `${MAX_CALLS} calls of this session are running`);
}

/** What is said alone moves what is usual. @throws ServiceFault */
function idleOf(usual: IdleTimes, { pauseMs, endMs }: Partial<IdleTimes> = {}): IdleTimes {
  const isFirst = (one: IdleTimes): boolean => one.pauseMs === null || one.endMs === null || one.pauseMs < one.endMs;
  const idle = { pauseMs: pauseMs ?? usual.pauseMs, endMs: endMs ?? usual.endMs };
  if (isFirst(idle)) return idle;
  if (pauseMs === undefined) return { pauseMs: null, endMs: idle.endMs };
  if (endMs === undefined) return { pauseMs, endMs: (pauseMs ?? 0) + (usual.endMs ?? 0) };
  throw new ServiceFault(422, "BAD_TIMES", "a session is paused before it ends: let it end later than it is paused");
}

function later(act: () => void, ms: number): NodeJS.Timeout {
  return setTimeout(act, Math.min(ms, MAX_TIMER_MS)).unref();
}

function shownNow({ shown, session }: Kept): ShownSession {
  return { ...shown, isPaused: session.session.isPaused };
}

/** No text of an input can be longer than the request that carries it. */
function withinRequest<Schema>(schema: Schema): Schema {
  if (Array.isArray(schema)) return schema.map(withinRequest) as Schema;
  if (typeof schema !== "object" || schema === null) return schema;
  const rows = Object.entries(schema).map(([key, value]) => [
    key,
    key === "maxLength" && typeof value === "number" ? Math.min(value, SESSION_INPUT_BYTES) : withinRequest(value),
  ]);
  return Object.fromEntries(rows);
}

function shownTool(name: string, ...whose: [WorkerDefinition, ReadonlyMap<string, WorkerDefinition>]): ShownTool[] {
  const tool = TOOLS.get(name);
  if (tool === undefined) return [];
  const { title, effects } = tool;
  const description = describedFor(tool, ...whose);
  return [{ name, title, description, inputSchema: withinRequest(inputSchemaOf(tool)), readOnly: effects.readOnly }];
}
