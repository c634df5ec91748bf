import type { Stage } from "../../changes/stage.ts";
import type { GuardedFiles } from "../../files/guarded.ts";
import { DiskBaseline } from "../../isolation/disk/disk-baseline.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import { sha256 } from "../../platform/sha256.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type {
  AgreementRequest,
  CallToolAnswer,
  CallToolRequest,
  CommitAnswer,
  ExecToolAnswer,
  ExecToolRequest,
  Hands,
} from "../../tools/hands.ts";
import { runTool, type ToolResult } from "../../tools/run-tool.ts";
import type { CallRequest } from "../calls/call.ts";
import type { BrokerService } from "../cell/broker.ts";
import { sandboxView } from "../cell/sandbox-view.ts";
import type { Holder, HolderChange } from "../granted/holder.ts";
import { requestAccess } from "../grants/access-request.ts";
import { type Use, usedGranting } from "../grants/granting-tool.ts";
import type { GrantSurroundings } from "../grants/request.ts";
import { surroundingsOf } from "../grants/surroundings.ts";
import type { RunEnvironment } from "../model/environment.ts";
import type { Job } from "../model/job.ts";
import type { RunResult } from "../model/result.ts";
import { AgreedInTool } from "./agreed-in-tool.ts";
import { type Ask, askFor } from "./ask.ts";
import { CommandCell } from "./command-cell.ts";
import { Commits } from "./commits.ts";
import type { OnOutput } from "./exec-command.ts";
import { allowedTools, notOffered } from "./offered-tools.ts";
import { OutputDir } from "./output-dir.ts";
import { SandboxFiles } from "./sandbox-files.ts";
import type { OpenSessionCell } from "./session-cell.ts";
import { SessionGit } from "./session-git.ts";
import { agreeToCommand } from "./shell-consent.ts";
import { ToolRecords } from "./tool-records.ts";
import { WriteRoom } from "./write-room.ts";

type Call = (request: CallRequest, signal: AbortSignal) => Promise<RunResult>;

/**
 * One worker's sandbox, acted on by tools: files on the host's side of it, and commands in a cell of its own that is
 * started with the first of them. Both see the same directories with the same rights (docs/agreement.md).
 */
export class Session implements AsyncDisposable, Hands {
  readonly #job: Job;
  readonly #stage: Stage;
  readonly #env: RunEnvironment;
  readonly #call: Call;
  readonly #output: OutputDir;
  readonly #grants: GrantSurroundings;
  readonly #holder: Holder;
  readonly #unheard: () => void;
  #files: SandboxFiles;
  /** How much tools and commands may write, together. */
  readonly #room: WriteRoom;
  readonly #over = new AbortController();
  readonly #running = new Set<Promise<unknown>>();
  readonly #cell: CommandCell;
  readonly #standalone: boolean;
  readonly git: SessionGit;
  /** True once there were commands, or workers that were called. */
  #othersWrote = false;
  readonly #ask: Ask;
  readonly #commits: Commits;
  /** Null where a command's own tools are told by its calls and its changes. */
  readonly #records: ToolRecords | null;

  /** `standalone`: no worker of the job's own runs beside it. */
  static async open(
    job: Job,
    holder: Holder,
    stage: Stage,
    env: RunEnvironment,
    call: Call,
    standalone = false,
  ): Promise<Session> {
    return new Session(job, holder, stage, env, call, standalone, await OutputDir.make(env.ownerDir, job.run));
  }

  private constructor(
    job: Job,
    holder: Holder,
    stage: Stage,
    env: RunEnvironment,
    call: Call,
    standalone: boolean,
    output: OutputDir,
  ) {
    this.#standalone = standalone;
    this.#job = job;
    this.#holder = holder;
    this.#grants = surroundingsOf(job, env);
    this.#stage = stage;
    this.#env = env;
    this.#call = call;
    this.#output = output;
    this.#ask = askFor(job, env);
    this.#commits = new Commits(job, stage, env);
    this.#records = standalone ? new ToolRecords(job, env) : null;
    const baseline = new DiskBaseline();
    this.#room = new WriteRoom(() => this.#stage, baseline, env);
    this.#files = new SandboxFiles(stage.sandbox, job.attachments, output, this.#room);
    this.#unheard = holder.onChange((change) => this.#adopted(change));
    const serviceFor = (plan: Plan): BrokerService => this.#service(plan);
    this.#cell = new CommandCell({ job, env, output, baseline, stage: () => this.#stage, serviceFor });
    this.git = new SessionGit({
      job,
      env,
      sandbox: () => this.#stage.sandbox,
      files: () => this.files,
      agreedTo: (path, content) => this.#stage.agreed("write", path, sha256(content)),
      ask: this.#ask,
    });
  }

  /** What was granted, and once there is any, the long output of commands. */
  get files(): GuardedFiles {
    return this.#files.guarded;
  }

  /** What it may do now. */
  get sandbox(): Sandbox {
    return this.#stage.sandbox;
  }

  /**
   * Any tool, by name, on raw input. Rejects for bugs and for trouble with the engine. `onOutput` is given each piece of
   * what a command prints as it comes.
   */
  async runTool(name: string, rawInput: unknown, signal: AbortSignal, onOutput?: OnOutput): Promise<ToolResult> {
    const { worker } = this.#job;
    const allowed: readonly string[] = allowedTools(worker);
    return await this.#recorded(name, rawInput, async () =>
      allowed.includes(name) ? await this.#run(name, rawInput, signal, onOutput) : notOffered(name, worker),
    );
  }

  /** A worker of the job's `calls`, as a tool of its own: there for whoever may call it, whatever other tools there are. */
  async callWorker(request: CallToolRequest, signal: AbortSignal): Promise<ToolResult> {
    return await this.#recorded(request.worker, request, () => this.#run("call_worker", request, signal));
  }

  /** What was asked for of a tool that there is not, or in no readable form: an attempt is told as well. */
  recordUnmet(name: string, rawInput: unknown, code: string, message: string): void {
    this.#records?.add(name, rawInput, { ok: false, code, message, data: {} });
  }

  /** What broke off may have done something by then: that is told as well, before what went wrong goes on. */
  async #recorded(name: string, rawInput: unknown, use: () => Promise<ToolResult>): Promise<ToolResult> {
    try {
      const result = await use();
      this.#records?.add(name, rawInput, result);
      return result;
    } catch (error) {
      this.#records?.add(name, rawInput, { ...BROKEN_OFF, message: String(error) });
      throw error;
    }
  }

  async #run(name: string, rawInput: unknown, signal: AbortSignal, onOutput?: OnOutput): Promise<ToolResult> {
    const stopped = AbortSignal.any([signal, this.#over.signal]);
    if (stopped.aborted) return CANCELLED;
    const agreed = new AgreedInTool();
    const result = this.#useTool(name, rawInput, agreed, stopped, onOutput);
    this.#running.add(result);
    try {
      const answer = await result;
      // What somebody agreed to here is not asked about once more when it is applied.
      if (answer.ok) await agreed.tell(this.#stage, this.#isAlone());
      return answer;
    } catch (error) {
      // Whatever was under way rejects in its own manner when it is stopped.
      if (stopped.aborted) return CANCELLED;
      throw error;
    } finally {
      this.#running.delete(result);
    }
  }

  /** A tool that is refused for a path outside is used again where its directory is granted. */
  async #useTool(
    name: string,
    rawInput: unknown,
    agreed: AgreedInTool,
    signal: AbortSignal,
    onOutput?: OnOutput,
  ): Promise<ToolResult> {
    const use: Use = async (under) => {
      using files = under === null ? null : new SandboxFiles(under, this.#job.attachments, this.#output, this.#room);
      const hands = this.#handsNoting(agreed, () => (files ?? this.#files).guarded, onOutput);
      return await runTool(name, rawInput, hands, signal);
    };
    const cellIsOld = (): boolean => this.#cell.isStale;
    return await usedGranting({ name, rawInput, use, cellIsOld }, this.#holder, this.#grants, signal);
  }

  /** What is under way goes on with the files that it began with. */
  #adopted(change: HolderChange): void {
    const before = this.#files;
    this.#files = new SandboxFiles(this.#stage.sandbox, this.#job.attachments, this.#output, this.#room);
    void Promise.allSettled(this.#running).then(() => before[Symbol.dispose]());
    if (change === "granted") this.#cell.replaceBeforeNext();
    else this.#cell.endNow();
  }

  /** The same hands for one use of a tool, which write down what was agreed to in it. */
  #handsNoting(agreed: AgreedInTool, files: () => GuardedFiles, onOutput?: OnOutput): Hands {
    return {
      get files() {
        return agreed.noting(files());
      },
      agree: async (request, signal) => {
        await this.agree(request, signal);
        agreed.add(request);
      },
      exec: (request, signal) => this.exec(request, signal, onOutput),
      call: (request, signal) => this.call(request, signal),
      commit: (signal) => this.commit(signal),
      git: this.git,
    };
  }

  /** True where nothing but tools, one after another, has ever written in the session's directories. */
  #isAlone(): boolean {
    return this.#standalone && this.#running.size === 1 && !this.#othersWrote;
  }

  async agree({ operation, path, diff }: AgreementRequest, signal: AbortSignal): Promise<void> {
    const what = { operations: [operation], paths: [path], ...(diff === undefined ? {} : { diff }) };
    await this.#ask(what, `${operation} ${path}`, signal);
  }

  /** `onOutput` is given each piece of output as it comes; the answer holds it as well, cut where it is long. */
  async exec(
    request: ExecToolRequest,
    signal: AbortSignal,
    onOutput: OnOutput = () => undefined,
  ): Promise<ExecToolAnswer> {
    await agreeToCommand(request, this.#job.worker.shellRules, this.#ask, signal);
    const stopped = AbortSignal.any([signal, this.#job.signal, this.#over.signal]);
    await this.#env.grants.look();
    this.#othersWrote = true;
    return await this.#cell.exec(request, stopped, onOutput);
  }

  async call(request: CallToolRequest, signal: AbortSignal): Promise<CallToolAnswer> {
    this.#othersWrote = true;
    const result = await this.#call({ ...request, input: request.input, narrow: null }, signal);
    const { status, output, error } = result;
    return { status, output, error, result: { ...result } };
  }

  /** Applies what was changed so far, as far as somebody agrees to it. The session goes on. */
  async commit(signal: AbortSignal): Promise<CommitAnswer> {
    return await this.#commits.next(signal);
  }

  /** The session's cell, started where there is none. */
  async cell(signal: AbortSignal): Promise<OpenSessionCell> {
    this.#over.signal.throwIfAborted();
    this.#othersWrote = true;
    return await this.#cell.open(signal);
  }

  /** Ends whatever tools are still at work, and leaves nothing behind. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#over.abort(new Error("the session has ended"));
    await Promise.allSettled(this.#running);
    try {
      await this.#cell[Symbol.asyncDispose]();
    } finally {
      this.#unheard();
      this.#files[Symbol.dispose]();
      await this.#output[Symbol.asyncDispose]();
      if (this.#job.parent === null) await this.#env.git?.endTree(this.#job.tree);
    }
  }

  /** What the programs in the session's cell reach at their socket. */
  #service(plan: Plan): BrokerService {
    const cell = this.#cell;
    return {
      call: (request, signal) => cell.asRunning(() => this.#call(request, signal)),
      tool: async (name, input, signal) =>
        // It would wait for its turn until the command that asks for it has ended.
        name === "exec"
          ? await this.#recorded(name, input, async () => EXEC_WITHIN_EXEC)
          : await cell.asRunning(() => this.runTool(name, input, signal)),
      access: (request, signal) => cell.asRunning(() => requestAccess(request, this.#holder, this.#grants, signal)),
      sandbox: () => sandboxView(this.#job, this.#stage.sandbox, plan),
    };
  }
}

const CANCELLED: ToolResult = { ok: false, code: "CANCELLED", message: "It was cancelled.", data: {} };

const BROKEN_OFF = { ok: false, code: "INTERNAL", data: {} } as const;

const EXEC_WITHIN_EXEC: ToolResult = {
  ok: false,
  code: "EXEC_WITHIN_EXEC",
  message: "This program was started by `exec` and runs in that container already: run the command directly.",
  data: {},
};
