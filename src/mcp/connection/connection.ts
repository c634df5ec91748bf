import { AsyncLocalStorage } from "node:async_hooks";
import type { Approver } from "../../approval/approver.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { isTooDeep, MAX_JSON_DEPTH } from "../../json/parse-json.ts";
import type { RunEnvironment } from "../../run/model/environment.ts";
import type { Narrow } from "../../run/model/job.ts";
import { type OpenedSession, openSession } from "../../run/open-session.ts";
import type { OnOutput } from "../../run/session/exec-command.ts";
import type { Session } from "../../run/session/session.ts";
import { governingMount } from "../../sandbox/access.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { covers, holds, parseVirtualPath, ROOT, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { present } from "../../text/present.ts";
import { printable } from "../../text/visible.ts";
import type { ToolResult } from "../../tools/tool.ts";
import { type ClientExchange, ClientToolUse, type Round, Slots } from "./call.ts";
import { ClientApprover, type ClientApproverOptions, ClientRoots, type QuestionRoutes } from "./client-approver.ts";
import { type OfferedTool, offeredTools, refusedAnswer, STARTED_TOOLS } from "./started-tools.ts";

export interface SandboxSessionOptions {
  readonly worker: WorkerDefinition;
  /** A policy in place of the project's. */
  readonly policy?: string;
  readonly environment: RunEnvironment;
  readonly routes: QuestionRoutes;
  /** Receives the questions of runs in it. */
  readonly approver: Approver;
  /** Reports to the person who started the server. */
  readonly tell: (line: string) => void;
}

/** The sandbox under the current roots. */
export type UnderRoots =
  | {
      readonly ok: true;
      readonly session: Session;
      /** True if no directory of the worker is in the client's roots. */
      readonly isEmptied: boolean;
    }
  | Extract<OpenedSession, { ok: false }>;

interface Current {
  readonly hosts: readonly string[] | null;
  readonly opened: Extract<OpenedSession, { ok: true }>;
  readonly isEmptied: boolean;
  readonly forget: () => void;
}

/**
 * One client's session of the worker, with its own cell: opened by the first request, and opened again if the client's
 * roots have changed. What each session sees is derived from the worker's own sandbox, never from the previous session.
 */
class SandboxSession implements AsyncDisposable {
  readonly #options: SandboxSessionOptions;
  #current: Current | null = null;
  #isOver = false;
  /** Opening and closing take turns. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(options: SandboxSessionOptions) {
    this.#options = options;
  }

  /** `hosts`: the real directories of the client's roots; null: it has none, and gets the worker's whole sandbox. */
  async under(hosts: readonly string[] | null): Promise<UnderRoots> {
    return await this.#inTurn(async () => {
      if (this.#isOver) throw new Error("the client's session is over");
      if (this.#current !== null && isSame(this.#current.hosts, hosts)) return told(this.#current);
      await this.#close();
      return await this.#open(hosts);
    });
  }

  /** Ends a session under other roots than these; the next request opens a new one. */
  async leave(hosts: readonly string[]): Promise<void> {
    await this.#inTurn(async () => {
      if (this.#current !== null && !isSame(this.#current.hosts, hosts)) await this.#close();
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#inTurn(async () => {
      this.#isOver = true;
      await this.#close();
    });
  }

  async #open(hosts: readonly string[] | null): Promise<UnderRoots> {
    const { worker, policy, environment, routes, approver, tell } = this.#options;
    let isEmptied = false;
    const opened = await openSession(
      {
        worker,
        signal: NEVER,
        ...present({ policy }),
        narrow(sandbox) {
          // A root that is the whole machine excludes nothing.
          if (hosts === null || hosts.includes("/")) return null;
          const narrow = narrowToRoots(sandbox, hosts);
          isEmptied = sandbox.mounts.length > 0 && narrow.allowRead?.length === 0;
          return narrow;
        },
      },
      environment,
    );
    if (!opened.ok) return opened;
    if (isEmptied)
      tell(
        "None of the worker's directories is in the client's roots, so it sees no files. --no-roots ignores the roots.",
      );
    this.#current = { hosts, opened, isEmptied, forget: routes.add(opened.run, approver) };
    return told(this.#current);
  }

  /** Stops all work in it, and applies the changes as far as the project's rules allow. */
  async #close(): Promise<void> {
    const current = this.#current;
    if (current === null) return;
    this.#current = null;
    const { opened, forget } = current;
    try {
      const failure = (await opened.finish())?.failure ?? null;
      if (failure !== null) this.#options.tell(printable(failure.error.message));
    } finally {
      forget();
      await opened[Symbol.asyncDispose]();
    }
  }

  #inTurn<T>(act: () => Promise<T>): Promise<T> {
    const turn = this.#turn.then(act);
    this.#turn = turn.catch(() => {});
    return turn;
  }
}

/** A session ends in order, even if its server is stopped: a cancelled session would apply nothing. */
const NEVER = new AbortController().signal;

function told({ opened, isEmptied }: Current): UnderRoots {
  return { ok: true, session: opened.session, isEmptied };
}

function isSame(a: readonly string[] | null, b: readonly string[] | null): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

export interface ConnectionOptions extends Omit<SandboxSessionOptions, "approver"> {
  /** The workers of the project, by name. */
  readonly workers: ReadonlyMap<string, WorkerDefinition>;
  readonly honoursRoots: boolean;
  readonly approvalTimeoutMs: number;
  /** True if clients that cannot be distinguished share it: consent from the person behind one is for no other. */
  readonly isShared: boolean;
  /** Decides if the client cannot ask a person. */
  readonly otherwise: ClientApproverOptions["otherwise"];
  /** Reports a bug or an Engine error with its own message. It may contain host paths, so no client gets it. */
  readonly report: (error: unknown) => void;
}

/** The result of a request, and notes for its client. */
export interface Told {
  readonly round: Round;
  readonly notes: readonly string[];
}

/** Calls that wait for their client's retry; beyond this number the oldest is cancelled. */
const MAX_PARKED = 200;
/** How long a result is kept if the client did not retry in time. */
const KEPT_MS = 60_000;

/** One client, or all that share it, and the sandbox, from the first request to the last. */
export class McpConnection implements AsyncDisposable {
  readonly worker: WorkerDefinition;
  readonly workers: ReadonlyMap<string, WorkerDefinition>;
  readonly tools: ReadonlyMap<string, OfferedTool>;
  readonly #options: ConnectionOptions;
  readonly #fileSlots = new Slots();
  /** Commands, calls and git may take long: file requests do not wait behind them. */
  readonly #longSlots = new Slots();
  readonly #sandbox: SandboxSession;
  readonly #roots: ClientRoots;
  readonly #under = new Set<ClientToolUse>();
  readonly #parked = new Map<string, ClientToolUse>();
  /**
   * The call that a question comes from: a request for consent names the run, but many calls of a client use the same one.
   * Null if no question is possible. A program in the cell asks as the command that runs. Any other question (such as
   * one of a program when no command runs) goes to the newest call, but only if all calls are of one client.
   */
  readonly #callOf = new AsyncLocalStorage<ClientToolUse | null>();

  constructor(options: ConnectionOptions) {
    const { worker, workers, honoursRoots, approvalTimeoutMs, isShared, otherwise, tell } = options;
    this.#options = options;
    this.worker = worker;
    this.workers = workers;
    const offered = offeredTools(worker);
    this.tools = new Map([...offered, ...(offered.has("exec") ? STARTED_TOOLS : [])]);
    const approver = new ClientApprover({
      callInQuestion: () => this.#callInQuestion(),
      ask: (call, form, signal) => this.#slotsFor(call.tool).without(call, () => call.ask(form, signal)),
      timeoutMs: approvalTimeoutMs,
      isShared,
      otherwise,
    });
    this.#sandbox = new SandboxSession({ ...options, approver });
    this.#roots = new ClientRoots({ isHonoured: honoursRoots, tell });
  }

  /** Uses a tool, or continues the use that the client retries. */
  async use(name: string, input: unknown, exchange: ClientExchange): Promise<Told> {
    const { state } = exchange;
    if (isTooDeep(input)) return { round: { kind: "done", result: refusedAnswer("BAD_INPUT", TOO_DEEP) }, notes: [] };
    const call = state === undefined ? this.#begin(name, input, exchange) : this.#unparked(state, name, input);
    if (call === null)
      return { round: { kind: "done", result: refusedAnswer("QUESTION_OVER", QUESTION_OVER) }, notes: [] };
    const round = await call.round(exchange);
    if (round.kind === "asks") this.#park(call);
    return { round, notes: call.notes };
  }

  /** The same for requests that ask no person, such as reading a resource. */
  async look(name: string, input: unknown, exchange: ClientExchange): Promise<ToolResult> {
    const { signal } = exchange;
    const look = (): Promise<ToolResult> => this.#run(name, input, exchange, signal);
    return await this.#callOf.run(null, () => this.#inSlot(name, signal, look));
  }

  /** The client reports that its roots changed: closes what is open under the old ones. */
  async rootsChanged(ask: () => Promise<readonly string[]>): Promise<void> {
    const hosts = await this.#roots.changed(ask);
    if (hosts !== null) await this.#sandbox.leave(hosts);
  }

  /** Stops all work, and removes everything of its sandbox. */
  async [Symbol.asyncDispose](): Promise<void> {
    for (const call of [...this.#under, ...this.#parked.values()]) call.cancel(new Error("the client is gone"));
    this.#parked.clear();
    await this.#sandbox[Symbol.asyncDispose]();
    await Promise.all([this.#fileSlots.idle(), this.#longSlots.idle()]);
  }

  #begin(name: string, input: unknown, exchange: ClientExchange): ClientToolUse {
    const call = new ClientToolUse(name, input, exchange, (self, signal, onOutput) =>
      this.#inSlot(name, signal, () =>
        this.#callOf.run(self, () =>
          this.#run(name, input, { ...exchange, signal }, signal, { onOutput, notes: self.notes }),
        ),
      ),
    );
    this.#under.add(call);
    void call.ended.then(() => this.#under.delete(call));
    return call;
  }

  #slotsFor(tool: string): Slots {
    return this.tools.get(tool)?.uses === "files" ? this.#fileSlots : this.#longSlots;
  }

  async #inSlot(tool: string, signal: AbortSignal, work: () => Promise<ToolResult>): Promise<ToolResult> {
    const taken = this.#slotsFor(tool).take(work, signal);
    if (taken === null)
      return refusedAnswer("TOO_MANY_REQUESTS", "Too many requests are already waiting. Try again later.");
    try {
      return await taken;
    } catch (error) {
      if (signal.aborted) return refusedAnswer("CANCELLED", "It was cancelled.");
      this.#options.report(error);
      return refusedAnswer("SERVER_TROUBLE", "The server failed. Its own log says why.");
    }
  }

  async #run(
    name: string,
    input: unknown,
    exchange: Pick<ClientExchange, "push" | "signal" | "whenRead">,
    signal: AbortSignal,
    { onOutput, notes }: { onOutput?: OnOutput; notes?: string[] } = {},
  ): Promise<ToolResult> {
    await exchange.whenRead(signal);
    const hosts = await this.#roots.current(exchange).catch(() => "untold" as const);
    if (hosts === "untold") return refusedAnswer("ROOTS_UNKNOWN", ROOTS_UNKNOWN);
    const opened = await this.#sandbox.under(hosts);
    if (!opened.ok) {
      const { violations } = opened;
      return refusedAnswer("REFUSED", violations.map(({ message }) => message).join("\n"), { violations });
    }
    if (opened.isEmptied) notes?.push(EMPTIED);
    const ofSession = this.tools.has(name) ? STARTED_TOOLS.get(name) : undefined;
    if (ofSession !== undefined) return await ofSession.run(opened.session, input, signal);
    return await opened.session.runTool(name, input, signal, onOutput);
  }

  #callInQuestion(): ClientToolUse | null {
    const call = this.#callOf.getStore();
    if (call === null) return null;
    if (call !== undefined && !call.isOver) return call.asks ? call : null;
    if (this.#options.isShared) return null;
    return [...this.#under].reverse().find(({ asks }) => asks) ?? null;
  }

  #park(call: ClientToolUse): void {
    this.#parked.set(call.state, call);
    const [oldest] = this.#parked.values();
    if (this.#parked.size > MAX_PARKED && oldest !== undefined) {
      this.#parked.delete(oldest.state);
      oldest.cancel(new Error("too many calls wait for their client"));
    }
    void call.ended.then(() => setTimeout(() => this.#parked.delete(call.state), KEPT_MS).unref());
  }

  /** Null if no such call waits. An answer for one call is not an answer for another. */
  #unparked(state: string, name: string, input: unknown): ClientToolUse | null {
    const call = this.#parked.get(state);
    if (call === undefined || !call.is(name, input)) return null;
    this.#parked.delete(state);
    return call;
  }
}

const TOO_DEEP = `The input is nested deeper than ${MAX_JSON_DEPTH} levels.`;
const QUESTION_OVER = "The question is no longer open. Use the tool again without the answer.";
const ROOTS_UNKNOWN = "The client has roots but did not list them, so no files are shown. Try again.";
const EMPTIED =
  "None of this worker's directories is in the client's roots, so there are no files. To see files, widen the roots, or start the server with --no-roots.";

/**
 * The part of a sandbox that lies in the roots of a client: directories inside a root, and roots inside a directory.
 * `hosts`: real host directories. Pure.
 *
 * A narrowing can only name paths, and a path includes everything below it. So if a directory of the sandbox contains
 * another one that lies outside the roots, the whole first directory is left out: to show it without the second would
 * show what the second hides.
 */
export function narrowToRoots(sandbox: Sandbox, hosts: readonly string[]): Narrow {
  const isInside = (mount: Mount): boolean => hosts.some((root) => holds(root, mount.host));
  const candidates = sandbox.mounts.flatMap((mount) =>
    isInside(mount) ? [mount.path] : hosts.flatMap((root) => partOf(mount, root, sandbox)),
  );
  const isWhole = (path: VirtualPath): boolean =>
    sandbox.mounts.every((mount) => mount.path === path || !covers(path, mount.path) || isInside(mount));
  const allowRead = [...new Set(candidates)].filter(isWhole);
  const allowWrite = allowRead.filter((path) => governingMount(sandbox, path)?.mode === "rw");
  return { allowRead, allowWrite };
}

/** The place of a root in a mount; none if another mount is there, or if no path can name it. */
function partOf(mount: Mount, root: string, sandbox: Sandbox): VirtualPath[] {
  if (!holds(mount.host, root)) return [];
  const rest = mount.host === "/" ? root.slice(1) : root.slice(mount.host.length + 1);
  const written = `${mount.path === ROOT ? "" : mount.path}/${rest}`;
  const parsed = parseVirtualPath(written);
  if (!parsed.ok || parsed.path !== written || governingMount(sandbox, parsed.path) !== mount) return [];
  return [parsed.path];
}
