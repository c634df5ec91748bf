import { posix } from "node:path";
import PQueue from "p-queue";
import { describeShellDecision } from "../../approval/shell-rules/wording.ts";
import type { Files } from "../../files/files.ts";
import { type GuardedFiles, guarded } from "../../files/guarded.ts";
import { openHostFiles } from "../../files/host/host-files.ts";
import { EngineTrouble } from "../../isolation/driver.ts";
import { OUTPUT_PATH, type Plan } from "../../isolation/plan.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { canonicalMounts } from "../../sandbox/select.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type {
  AgreementRequest,
  CallToolAnswer,
  CallToolRequest,
  ExecToolAnswer,
  ExecToolRequest,
  Hands,
} from "../../tools/hands.ts";
import { runTool, type ToolResult } from "../../tools/run-tool.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { BrokerService } from "../broker.ts";
import type { CallRequest } from "../call.ts";
import type { RunEnvironment } from "../environment.ts";
import { type Job, placeOf } from "../job.ts";
import type { RunResult } from "../result.ts";
import { sandboxView } from "../sandbox-view.ts";
import { checkedCommand } from "./checked-command.ts";
import { answerOf, unstartedAnswer } from "./exec-answer.ts";
import { execCommand, type OnOutput } from "./exec-command.ts";
import { type OpenCell, openCell } from "./open-cell.ts";
import { OutputDir } from "./output-dir.ts";
import { shellConsent, shownCommand } from "./shell-consent.ts";

type Call = (request: CallRequest, signal: AbortSignal) => Promise<RunResult>;

/**
 * One worker's sandbox, acted on by tools: files on the host's side of it, and commands in a cell of its own that is
 * started with the first of them. Both see the same directories with the same rights (design section 4, agreement).
 */
export class Session implements AsyncDisposable, Hands {
  readonly #job: Job;
  readonly #sandbox: Sandbox;
  readonly #env: RunEnvironment;
  readonly #call: Call;
  readonly #output: OutputDir;
  readonly #hostFiles: Files;
  readonly #files: { readonly granted: GuardedFiles; readonly withOutput: GuardedFiles };
  readonly #over = new AbortController();
  readonly #running = new Set<Promise<unknown>>();
  /** One command at a time: what ends one ends everything in the cell. */
  readonly #commands = new PQueue({ concurrency: 1 });
  #cell: Promise<OpenCell> | null = null;
  #commandCount = 0;

  static async open(job: Job, sandbox: Sandbox, env: RunEnvironment, call: Call): Promise<Session> {
    return new Session(job, sandbox, env, call, await OutputDir.make(env.ownerDir, job.run));
  }

  private constructor(job: Job, sandbox: Sandbox, env: RunEnvironment, call: Call, output: OutputDir) {
    this.#job = job;
    this.#sandbox = sandbox;
    this.#env = env;
    this.#call = call;
    this.#output = output;
    const shown = withOutput(sandbox, output.path);
    this.#hostFiles = openHostFiles(shown.mounts);
    this.#files = { granted: guarded(this.#hostFiles, sandbox), withOutput: guarded(this.#hostFiles, shown) };
  }

  /** What was granted, and once there is any, the long output of commands. */
  get files(): GuardedFiles {
    return this.#output.isUsed ? this.#files.withOutput : this.#files.granted;
  }

  /** Any tool, by name, on raw input. Rejects for bugs and for trouble with the engine. */
  async runTool(name: string, rawInput: unknown, signal: AbortSignal): Promise<ToolResult> {
    const stopped = AbortSignal.any([signal, this.#over.signal]);
    if (stopped.aborted) return CANCELLED;
    const result = runTool(name, rawInput, this, stopped);
    this.#running.add(result);
    try {
      return await result;
    } catch (error) {
      // Whatever was under way rejects in its own manner when it is stopped.
      if (stopped.aborted) return CANCELLED;
      throw error;
    } finally {
      this.#running.delete(result);
    }
  }

  async agree({ operation, path }: AgreementRequest, signal: AbortSignal): Promise<void> {
    await this.#ask({ operations: [operation], paths: [path] }, `${operation} ${path}`, signal);
  }

  /** `onOutput` is given each piece of output as it comes; the answer holds it as well, cut where it is long. */
  async exec(
    request: ExecToolRequest,
    signal: AbortSignal,
    onOutput: OnOutput = () => undefined,
  ): Promise<ExecToolAnswer> {
    const decision = shellConsent(request, this.#job.worker.shellRules);
    const why = describeShellDecision(decision);
    if (decision.consent === "blocked") throw new ToolRefusal("COMMAND_BLOCKED", why);
    if (decision.consent === "ask") {
      const what = { operations: ["exec"], paths: [], command: shownCommand(request) } as const;
      await this.#ask(what, `run a command: ${why}`, signal);
    }
    const stopped = AbortSignal.any([signal, this.#job.signal, this.#over.signal]);
    return await this.#commands.add(() => this.#execNow(request, stopped, onOutput));
  }

  async call(request: CallToolRequest, signal: AbortSignal): Promise<CallToolAnswer> {
    const result = await this.#call({ ...request, input: request.input, narrow: null }, signal);
    const { status, output, error } = result;
    return { status, output, error, result: { ...result } };
  }

  /** The session's cell, started where there is none. */
  async cell(signal: AbortSignal): Promise<OpenCell> {
    signal.throwIfAborted();
    this.#over.signal.throwIfAborted();
    if (this.#cell !== null) return await this.#cell;
    const opening = openCell(
      this.#job,
      this.#sandbox,
      this.#output.path,
      (plan) => this.#service(plan),
      this.#env,
      signal,
    );
    this.#cell = opening;
    try {
      return await opening;
    } catch (error) {
      if (this.#cell === opening) this.#cell = null;
      throw error;
    }
  }

  /** Ends whatever tools are still at work, and leaves nothing behind. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort(new Error("the session has ended"));
    await Promise.allSettled(this.#running);
    await this.#commands.onIdle();
    try {
      await this.#closeCell();
    } finally {
      this.#hostFiles[Symbol.dispose]();
      await this.#output[Symbol.asyncDispose]();
    }
  }

  async #execNow(request: ExecToolRequest, signal: AbortSignal, onOutput: OnOutput): Promise<ExecToolAnswer> {
    const begunAt = this.#env.now();
    const replaced = await this.#closeEndedCell();
    let opened: OpenCell;
    try {
      opened = await this.cell(signal);
    } catch (error) {
      if (signal.aborted) return unstartedAnswer("cancelled", replaced);
      if (!(error instanceof EngineTrouble)) throw error;
      this.#tell(error.message);
      return unstartedAnswer("lost", replaced);
    }
    this.#commandCount += 1;
    const bounds = { id: String(this.#commandCount), leftMs: this.#job.deadline - begunAt, onOutput };
    const command = checkedCommand(request, this.#sandbox, opened.plan, bounds);
    const result = await execCommand(opened.cell, command, this.#output, signal);
    if (result.trouble !== null) this.#tell(result.trouble);
    if (!result.cellUsable) await this.#closeCell();
    const cellReplaced = replaced || !result.cellUsable;
    return answerOf(result, opened.facts, { cellReplaced, durationMs: Math.round(this.#env.now() - begunAt) });
  }

  /** What the programs in the session's cell reach at their socket. */
  #service(plan: Plan): BrokerService {
    return {
      call: this.#call,
      tool: async (name, input, signal) =>
        // It would wait for its turn until the command that asks for it has ended.
        name === "exec" ? EXEC_WITHIN_EXEC : await this.runTool(name, input, signal),
      sandbox: () => sandboxView(this.#job, this.#sandbox, plan),
    };
  }

  /** True where the cell had ended by itself since the last command, and is gone now. */
  async #closeEndedCell(): Promise<boolean> {
    const cell = await this.#cell?.catch(() => null);
    if (!cell?.hasEnded()) return false;
    await this.#closeCell();
    return true;
  }

  /** A cell that cannot be removed is told to a person; what became of its commands stays true. */
  async #closeCell(): Promise<void> {
    const opening = this.#cell;
    this.#cell = null;
    try {
      // One that could not be opened was told to whoever wanted it.
      const cell = await opening?.catch(() => null);
      await cell?.[Symbol.asyncDispose]();
    } catch (error) {
      if (!(error instanceof EngineTrouble)) throw error;
      this.#tell(error.message);
    }
  }

  #tell(detail: string): void {
    this.#env.emit({ type: "trouble", ...placeOf(this.#job), detail });
  }

  async #ask(
    what: { operations: readonly ("write" | "delete" | "exec")[]; paths: readonly string[]; command?: string },
    said: string,
    signal: AbortSignal,
  ): Promise<void> {
    const { run, root, worker } = this.#job;
    const decision = await this.#env.approver.decide({ run, root, worker: worker.name, ...what }, signal);
    if (decision.outcome === "approved") return;
    const timedOut = decision.outcome === "timed_out";
    const answer = timedOut ? "nobody answered in time" : `it was denied: ${decision.reason}`;
    throw new ToolRefusal(
      timedOut ? "APPROVAL_TIMED_OUT" : "APPROVAL_DENIED",
      `To ${said} needs approval, and ${answer}.`,
    );
  }
}

const CANCELLED: ToolResult = { ok: false, code: "CANCELLED", message: "It was cancelled.", data: {} };

const EXEC_WITHIN_EXEC: ToolResult = {
  ok: false,
  code: "EXEC_WITHIN_EXEC",
  message: "This program was started by `exec` and runs in that container already: run the command directly.",
  data: {},
};

/** The sandbox with one directory more, which only Corral writes: the whole of what commands printed. */
function withOutput(sandbox: Sandbox, host: string): Sandbox {
  const mount: Mount = {
    name: ".corral",
    path: posix.normalize(OUTPUT_PATH) as VirtualPath,
    host,
    mode: "ro",
    approval: { write: "blocked", delete: "blocked" },
  };
  return { ...sandbox, mounts: canonicalMounts([...sandbox.mounts, mount]) };
}
