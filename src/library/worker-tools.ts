import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { refusedError } from "../operations/request-error.ts";
import { agentTools } from "../run/agent/agent-tools.ts";
import type { SettledChanges } from "../run/changes/settled-run.ts";
import type { RunEnvironment } from "../run/model/environment.ts";
import { type OpenedSession, openSession } from "../run/open-session.ts";
import { usefulTools } from "../run/session/offered-tools.ts";
import type { ToolResult } from "../tools/tool-result.ts";
import type { AiTool, ToolImages } from "./ai-tools.ts";
import { FileSandbox } from "./file-sandbox.ts";
import { type ToolCallOptions, type ToolFunctions, toolFunctions } from "./tool-functions.ts";

/** How a worker's tools are opened. Everything may be left out. */
export interface ToolsOptions {
  /** A policy in place of the project's. */
  readonly policy?: string;
  /** Ends whatever tool is at work, and lets no further one begin. What was changed then waits. */
  readonly signal?: AbortSignal;
  /** Whether models are shown images that `read_file` answers with. Absent: in the result, which not every provider takes. */
  readonly images?: ToolImages;
}

/** What a worker of `calls` is given. */
export interface WorkerCall {
  /** Any JSON; what its `input_schema` asks. */
  readonly input?: unknown;
  /** Paths in the caller's own sandbox, each with the name that it gets below `/attachments`. */
  readonly attachments?: readonly (string | { readonly path: string; readonly name?: string })[];
}

/**
 * A worker's tools in a program's own hands: the same sandbox, container and refusals as when the worker itself runs. Nothing
 * is agreed to beforehand: what has to be asked for is asked of the project's approver.
 */
export interface WorkerTools extends AsyncDisposable {
  /** Its id, by which questions, records and changesets name it. */
  readonly run: string;
  readonly worker: string;
  /** As `tools` of `generateText`, `streamText` or `ToolLoopAgent` of `ai`: the worker's tools, and the workers of its `calls`. */
  readonly ai: Readonly<Record<string, AiTool>>;
  /** As plain functions. Its keys are the tools that the worker may use. */
  readonly call: ToolFunctions;
  /** Calls a worker of `calls` and waits for its answer. It gets at most what this one has. */
  callWorker(worker: string, call?: WorkerCall, options?: Pick<ToolCallOptions, "signal">): Promise<ToolResult>;
  /** What it may do at this moment. */
  readonly sandbox: FileSandbox;
  /**
   * Ends the tools, applies the staged changes as far as they are approved, and returns the result of each change; null if
   * none was staged. A second call returns the same answer.
   *
   * Tools that are disposed of and were not closed apply nothing: a program that failed in the middle has changed nothing
   * there, and what it wrote waits (`corral changes`).
   */
  close(): Promise<SettledChanges | null>;
}

/**
 * `ended` is called when nothing is left of them.
 *
 * @throws RequestError WORKER_REFUSED if the worker may not have what its file asks for.
 */
export async function openTools(
  worker: WorkerDefinition,
  { policy, signal = NEVER, images = "in the result" }: ToolsOptions,
  env: RunEnvironment,
  ended: () => void,
): Promise<WorkerTools> {
  // Loaded only for tools: a program that runs workers alone needs no `ai`.
  const { aiTools } = await import("./ai-tools.ts");
  const opened = await openSession({ worker, signal, ...(policy === undefined ? {} : { policy }) }, env);
  if (!opened.ok) throw refusedError("WORKER_REFUSED", worker.name, opened.violations);
  const { session, run } = opened;
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
    close: () => {
      closing ??= disposing === null ? closed(opened).finally(ended) : Promise.resolve(null);
      return closing;
    },
    [Symbol.asyncDispose]: () => {
      // The caller that closed got the error.
      disposing ??= closing === null ? opened[Symbol.asyncDispose]().finally(ended) : closing.then(nothing, nothing);
      return disposing;
    },
  };
}

/** Removes every trace, also where the changes could not be looked at. */
async function closed(opened: Extract<OpenedSession, { ok: true }>): Promise<SettledChanges | null> {
  try {
    return await opened.finish();
  } finally {
    await opened[Symbol.asyncDispose]();
  }
}

const nothing = (): void => {};

const NEVER = new AbortController().signal;
