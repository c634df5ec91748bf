import { posix } from "node:path";
import PQueue from "p-queue";
import { decideShell } from "../../approval/shell-rules/decide.ts";
import { describeShellDecision } from "../../approval/shell-rules/wording.ts";
import type { Files } from "../../files/files.ts";
import { type GuardedFiles, guarded } from "../../files/guarded.ts";
import { openHostFiles } from "../../files/host/host-files.ts";
import { OUTPUT_PATH } from "../../isolation/plan.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { canonicalMounts } from "../../sandbox/select.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { hintsFor } from "../../tools/exec-hints/hints.ts";
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
import type { Job } from "../job.ts";
import type { RunResult } from "../result.ts";
import { sandboxView } from "../sandbox-view.ts";
import { checkedCommand } from "./checked-command.ts";
import { execCommand } from "./exec-command.ts";
import { type OpenCell, openCell } from "./open-cell.ts";
import { makeOutputDir, type OutputDir } from "./output-dir.ts";

type Call = (request: CallRequest, signal: AbortSignal) => Promise<RunResult>;

/**
 * One worker's sandbox, acted on by tools: files on the host's side of it, and commands in a cell of its own that is
 * started with the first of them. Both see the same directories with the same rights (design section 4, agreement).
 */
export class Session implements AsyncDisposable, Hands {
  readonly files: GuardedFiles;
  readonly #job: Job;
  readonly #sandbox: Sandbox;
  readonly #env: RunEnvironment;
  readonly #call: Call;
  readonly #output: OutputDir;
  readonly #hostFiles: Files;
  /** One command at a time: what ends one ends everything in the cell. */
  readonly #commands = new PQueue({ concurrency: 1 });
  #cell: OpenCell | null = null;
  #commandCount = 0;

  static async open(job: Job, sandbox: Sandbox, env: RunEnvironment, call: Call): Promise<Session> {
    return new Session(job, sandbox, env, call, await makeOutputDir(env.ownerDir, job.run));
  }

  private constructor(job: Job, sandbox: Sandbox, env: RunEnvironment, call: Call, output: OutputDir) {
    this.#job = job;
    this.#sandbox = sandbox;
    this.#env = env;
    this.#call = call;
    this.#output = output;
    const shown = withOutput(sandbox, output.path);
    this.#hostFiles = openHostFiles(shown.mounts);
    this.files = guarded(this.#hostFiles, shown);
  }

  /** Any tool, by name, on raw input. */
  async runTool(name: string, rawInput: unknown, signal: AbortSignal): Promise<ToolResult> {
    return await runTool(name, rawInput, this, signal);
  }

  async agree({ operation, path }: AgreementRequest, signal: AbortSignal): Promise<void> {
    await this.#ask({ operations: [operation], paths: [path] }, `${operation} ${path}`, signal);
  }

  async exec(request: ExecToolRequest, signal: AbortSignal): Promise<ExecToolAnswer> {
    const decision = decideShell(request.command, this.#job.worker.shellRules);
    const why = describeShellDecision(decision);
    if (decision.consent === "blocked") throw new ToolRefusal("COMMAND_BLOCKED", why);
    if (decision.consent === "ask") {
      await this.#ask({ operations: ["exec"], paths: [], command: request.command }, `run a command: ${why}`, signal);
    }
    return await this.#commands.add(() => this.#execNow(request, signal));
  }

  async call(request: CallToolRequest, signal: AbortSignal): Promise<CallToolAnswer> {
    const result = await this.#call({ ...request, input: request.input, narrow: null }, signal);
    const { status, output, error } = result;
    return { status, output, error, result: { ...result } };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#closeCell();
    this.#hostFiles[Symbol.dispose]();
    await this.#output[Symbol.asyncDispose]();
  }

  async #execNow(request: ExecToolRequest, signal: AbortSignal): Promise<ExecToolAnswer> {
    const begunAt = this.#env.now();
    const opened = await this.cell(signal);
    this.#commandCount += 1;
    const left = this.#job.deadline - this.#env.now();
    const command = checkedCommand(request, this.#sandbox, opened.plan, {
      id: String(this.#commandCount),
      leftMs: left,
    });
    const result = await execCommand(
      opened.held,
      command,
      this.#output.path,
      AbortSignal.any([signal, this.#job.signal]),
    );
    if (!result.cellUsable) await this.#closeCell();
    const { status, exitCode, signal: endedBy } = result;
    const [stdout, stderr] = [result.stdout.text, result.stderr.text];
    return {
      status,
      exitCode,
      signal: endedBy,
      stdout,
      stderr,
      cut: result.stdout.cut || result.stderr.cut,
      hints: hintsFor({ stdout, stderr, exitCode, signal: endedBy, status }, opened.facts),
      cellReplaced: !result.cellUsable,
      durationMs: Math.round(this.#env.now() - begunAt),
    };
  }

  /** The session's cell, started where there is none. */
  async cell(signal: AbortSignal): Promise<OpenCell> {
    this.#cell ??= await openCell(this.#job, this.#sandbox, this.#output.path, this.#service(), this.#env, signal);
    return this.#cell;
  }

  /** What the programs in the session's cell reach at their socket. */
  #service(): BrokerService {
    return {
      call: this.#call,
      tool: (name, input, signal) => this.runTool(name, input, signal),
      sandbox: () => (this.#cell === null ? null : sandboxView(this.#job, this.#sandbox, this.#cell.plan)),
    };
  }

  async #closeCell(): Promise<void> {
    const cell = this.#cell;
    this.#cell = null;
    await cell?.[Symbol.asyncDispose]();
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
