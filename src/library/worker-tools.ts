import type { Duplex } from "node:stream";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { refusedError } from "../operations/request-error.ts";
import { agentTools } from "../run/agent/agent-run.ts";
import type { SettledChanges } from "../run/changes/settled-run.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import { type OpenedSession, openSession } from "../run/open-session.ts";
import { usefulTools } from "../run/session/offered-tools.ts";
import type { MovedContent, TransferKind } from "../run/session/session-files.ts";
import type { SessionPort } from "../run/session/session-ports.ts";
import type { SessionSnapshot, SessionSnapshots, SnapshotDifference } from "../run/session/session-snapshots.ts";
import type { NetworkReport } from "../sandbox/network/judge.ts";
import { present } from "../text/present.ts";
import { ToolRefusal, type ToolResult } from "../tools/tool.ts";
import { FileSandbox } from "./file-sandbox.ts";
import {
  type AiTool,
  type ToolCallOptions,
  type ToolFunctions,
  type ToolImages,
  toolFunctions,
} from "./tool-functions.ts";

/** How a worker's tools are opened. Every option is optional. */
export interface ToolsOptions {
  /** Replaces the project's policy. */
  readonly policy?: string;
  /** A snapshot to go on from, by its id or name, with at most what its session had. */
  readonly from?: string;
  /** Ends the running tools and starts no further one. Changes that are not applied yet are kept. */
  readonly signal?: AbortSignal;
  /** How models receive images of `read_file`. Absent: in the tool's result, which not every provider accepts. */
  readonly images?: ToolImages;
}

export interface PutOptions extends Pick<ToolCallOptions, "signal"> {
  /** Absent: `file`. */
  readonly kind?: TransferKind;
}

export interface GetOptions extends Pick<ToolCallOptions, "signal"> {
  /** What a session has written is its own choice, and may be endless. */
  readonly maxBytes?: number;
}

export interface TakenContent {
  readonly kind: TransferKind;
  readonly content: AsyncIterable<Uint8Array>;
}

const MAX_GET_BYTES = 1024 ** 3;

/** The input of a call of another worker. */
export interface WorkerCall {
  /** Any JSON that matches the worker's `input_schema`. */
  readonly input?: unknown;
  /** Paths in the caller's sandbox, each with its name below `/attachments`. */
  readonly attachments?: readonly (string | { readonly path: string; readonly name?: string })[];
}

/**
 * A worker's tools for the program itself, with the same sandbox, container and refusals as when the worker runs. Nothing is
 * approved beforehand: questions go to the project's approver.
 */
export interface WorkerTools extends AsyncDisposable {
  /** The id of this run in questions, records and changesets. */
  readonly run: string;
  readonly worker: string;
  /** As `tools` of `generateText`, `streamText` or `ToolLoopAgent` of `ai`: the worker's tools, and the workers of its `calls`. */
  readonly ai: Readonly<Record<string, AiTool>>;
  /** The tools as functions. Its keys are the tools that the worker may use. */
  readonly call: ToolFunctions;
  /** Calls a worker of `calls` and waits for its result. It gets at most what this worker has. */
  callWorker(worker: string, call?: WorkerCall, options?: Pick<ToolCallOptions, "signal">): Promise<ToolResult>;
  /** What the worker may do at this moment. */
  readonly sandbox: FileSandbox;
  /** What its commands did on their network so far; null if the worker has no allow list. */
  readonly network: NetworkReport | null;
  /** Writes a file of any size, or the entries of a tar archive into a folder. @throws ToolRefusal, SandboxError */
  put(path: string, content: AsyncIterable<Uint8Array>, options?: PutOptions): Promise<MovedContent>;
  /** A file as it comes, or a folder as a tar archive: read it to its end, or leave it. What has more than `maxBytes` (1 GiB) is an error. @throws ToolRefusal, SandboxError */
  get(path: string, options?: GetOptions): Promise<TakenContent>;
  /** The ports that the worker declares, and others that something in its container listens on. */
  ports(options?: Pick<ToolCallOptions, "signal">): Promise<readonly SessionPort[]>;
  /** A connection to a port that the worker declares. @throws ToolRefusal PORT_NOT_DECLARED, NOTHING_LISTENS */
  connect(port: number, options?: Pick<ToolCallOptions, "signal">): Promise<Duplex>;
  /** Keeps what was written in staged directories. What runs ends. Named, it stays after the end. @throws ToolRefusal */
  snapshot(name?: string): Promise<SessionSnapshot>;
  /** Shows what a snapshot has, in place of what was written since. What runs ends. @throws ToolRefusal */
  restore(snapshot: string): Promise<SessionSnapshot>;
  /** What it has that a snapshot has not, and the other way round. @throws ToolRefusal */
  differences(snapshot: string): Promise<readonly SnapshotDifference[]>;
  /** Those of the worker, the oldest first. */
  snapshots(): Promise<readonly SessionSnapshot[]>;
  /** @throws ToolRefusal UNKNOWN_SNAPSHOT */
  removeSnapshot(snapshot: string): Promise<SessionSnapshot>;
  /**
   * Ends the tools, applies the staged changes that are approved, and returns the result of each change; null if nothing was
   * staged. A second call returns the same answer.
   *
   * Disposing of tools that were not closed applies nothing: a program that failed in the middle has changed nothing, and
   * `corral changes` shows what it wrote.
   */
  close(): Promise<SettledChanges | null>;
}

/**
 * `ended` is called after everything of them is removed.
 *
 * @throws RequestError WORKER_REFUSED if the worker may not have what its file asks for.
 */
export async function openTools(
  worker: WorkerDefinition,
  { policy, from, signal = NEVER, images = "in the result" }: ToolsOptions,
  env: RunEnvironment,
  ended: () => void,
): Promise<WorkerTools> {
  // Loaded only here: a program that only runs workers needs no `ai`.
  const { aiTools } = await import("./tool-functions.ts");
  const opened = await openSession({ worker, signal, ...present({ policy, from }) }, env);
  if (!opened.ok) throw refusedError("WORKER_REFUSED", worker.name, opened.violations);
  const { session, run } = opened;
  const snapshots = (): SessionSnapshots => {
    if (session.snapshots === null) throw new ToolRefusal("SNAPSHOT_REFUSED", "These tools take no snapshots.");
    return session.snapshots;
  };
  /** What is read of it then is not read on. */
  const over = new AbortController();
  const close = (): void => over.abort(new Error("the tools are closed"));
  let closing: Promise<SettledChanges | null> | null = null;
  let disposing: Promise<void> | null = null;
  return {
    run,
    worker: worker.name,
    ai: aiTools(agentTools(worker, env.project.workers, session), images),
    call: toolFunctions(usefulTools(worker), session),
    callWorker: (name, { attachments = [], ...call } = {}, options = {}) => {
      const files = attachments.map((one) => (typeof one === "string" ? { path: one } : one));
      return session.callWorker({ ...call, attachments: files, worker: name }, options.signal ?? NEVER);
    },
    get sandbox() {
      return new FileSandbox(session.sandbox);
    },
    get network() {
      return session.network;
    },
    put: (path, content, { kind = "file", signal: stopped = NEVER } = {}) =>
      session.put({ path, kind, content }, stopped),
    get: async (path, { maxBytes = MAX_GET_BYTES, signal: stopped = NEVER } = {}) => {
      if (!(maxBytes > 0)) throw new RangeError("`maxBytes` of get must be a number above 0");
      return await takenContent(session, path, maxBytes, AbortSignal.any([stopped, over.signal]));
    },
    ports: ({ signal: stopped = NEVER } = {}) => session.ports.list(stopped),
    connect: (port, { signal: stopped = NEVER } = {}) => session.ports.connect(port, stopped),
    snapshot: async (name) => await snapshots().take(name ?? null),
    restore: async (snapshot) => await snapshots().restore(snapshot),
    differences: async (snapshot) => await snapshots().differences(snapshot, signal),
    snapshots: async () => await snapshots().list(),
    removeSnapshot: async (snapshot) => await snapshots().remove(snapshot),
    close: () => {
      close();
      closing ??= disposing === null ? closed(opened).finally(ended) : Promise.resolve(null);
      return closing;
    },
    [Symbol.asyncDispose]: () => {
      close();
      // The caller of `close` received the error.
      disposing ??= closing === null ? opened[Symbol.asyncDispose]().finally(ended) : closing.then(nothing, nothing);
      return disposing;
    },
  };
}

/** The session is in use while the content is read. */
async function takenContent(
  session: Extract<OpenedSession, { ok: true }>["session"],
  path: string,
  maxBytes: number,
  signal: AbortSignal,
): Promise<TakenContent> {
  const taken = Promise.withResolvers<void>();
  signal.addEventListener("abort", () => taken.resolve(), { once: true });
  const found = await session.get(path, taken.promise, signal, maxBytes).catch((error: unknown) => {
    taken.resolve();
    throw error;
  });
  async function* pieces(): AsyncGenerator<Uint8Array> {
    try {
      yield* found.content;
    } finally {
      taken.resolve();
    }
  }
  return { kind: found.kind, content: pieces() };
}

/** Removes everything, also if the changes cannot be read. */
async function closed(opened: Extract<OpenedSession, { ok: true }>): Promise<SettledChanges | null> {
  try {
    return await opened.finish();
  } finally {
    await opened[Symbol.asyncDispose]();
  }
}

const nothing = (): void => {};

const NEVER = new AbortController().signal;
