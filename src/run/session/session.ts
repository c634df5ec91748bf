import PQueue from "p-queue";
import type { RecordOf } from "../../audit/records.ts";
import type { ToolName } from "../../declarations/worker/tool-names.ts";
import type { GuardedFiles } from "../../files/guarded.ts";
import { DiskBaseline } from "../../isolation/disk/disk-watch.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { isTooDeep } from "../../json/parse-json.ts";
import { bugText } from "../../platform/errno.ts";
import { within } from "../../platform/within.ts";
import { SandboxError } from "../../sandbox/errors.ts";
import type { NetworkReport } from "../../sandbox/network/judge.ts";
import { commandSandbox, type Sandbox } from "../../sandbox/sandbox.ts";
import type { CallToolRequest, ExecToolAnswer, ExecToolRequest } from "../../tools/hands.ts";
import { ToolRefusal, type ToolResult } from "../../tools/tool.ts";
import type { BrokerService } from "../cell/broker.ts";
import { sandboxView } from "../cell/prepare.ts";
import { requestAccess, surroundingsOf } from "../grants/access-request.ts";
import type { Records } from "../model/environment.ts";
import { identityOf, type Job } from "../model/job.ts";
import { CommandCell, ENDING_MS, type OpenSessionCell } from "./command-cell.ts";
import type { OnOutput } from "./exec-command.ts";
import { allowedTools, notOffered } from "./offered-tools.ts";
import { getFrom, type MovedContent, putInto, type TransferPlace } from "./session-files.ts";
import { lessBy, SessionHands, type SessionParts, type ToolCall } from "./session-hands.ts";
import { SessionPorts } from "./session-ports.ts";
import { SessionSnapshots, type SnapshotParts } from "./session-snapshots.ts";
import type { CommandStart, StartedCommand, StartedCommands } from "./started-commands.ts";
import { OutputDir } from "./write-room.ts";

interface OpenedSession extends AsyncDisposable {
  runTool(name: string, rawInput: unknown, signal: AbortSignal): Promise<ToolResult>;
}

/** A session that is opened with the first tool that a run uses: most runs use none. */
export class LazySession implements AsyncDisposable {
  readonly #open: () => Promise<OpenedSession>;
  #isOver = false;
  #session: Promise<OpenedSession> | null = null;

  constructor(open: () => Promise<OpenedSession>) {
    this.#open = open;
  }

  async runTool(name: string, rawInput: unknown, signal: AbortSignal): Promise<ToolResult> {
    if (this.#isOver) throw new Error("a tool was asked for after the run had ended");
    this.#session ??= this.#open();
    return await (await this.#session).runTool(name, rawInput, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#isOver = true;
    // The error of a session that could not be opened went to the tool that wanted it.
    const session = await this.#session?.catch(() => null);
    await session?.[Symbol.asyncDispose]();
  }
}

/** The limit for one session: a loop may use tools without end. */
const MAX_RECORDS = 10_000;

/** Records the use of one tool of a session. */
export type RecordTool = (tool: string, rawInput: unknown, result: ToolResult) => void;

/** Records the use of a session's tools. No tool waits for the disk; a failure to record is reported. */
function toolRecorder(job: Job, { audit, emit }: Records): RecordTool {
  let count = 0;
  return (tool, rawInput, result) => {
    count += 1;
    if (count > MAX_RECORDS) return;
    const note = count === MAX_RECORDS ? "further tools of this session are not recorded" : undefined;
    audit.append({ ...toolUsed(job, tool, rawInput, result), note }).catch((error: Error) => {
      emit({ type: "trouble", ...identityOf(job), detail: error.message });
    });
  };
}

/** The fields of a tool's input that say what it was used on. Contents that it wrote or received are not recorded. */
const TELLING = ["path", "from", "to", "paths", "files", "command", "cwd", "worker", "attachments", "repo", "commit"];
const MAX_TEXT = 1000;

function toolUsed(
  { run, root, worker }: Pick<Job, "run" | "root" | "worker">,
  tool: string,
  rawInput: unknown,
  result: ToolResult,
): RecordOf<"tool_used"> {
  const input = typeof rawInput === "object" && rawInput !== null ? (rawInput as Record<string, unknown>) : {};
  const on = TELLING.filter((name) => Object.hasOwn(input, name)).map((name) => [name, shown(input[name])]);
  const refusal = result.ok ? {} : { code: result.code, message: result.message.slice(0, MAX_TEXT) };
  return {
    type: "tool_used",
    run,
    root,
    worker: worker.name,
    tool,
    on: Object.fromEntries(on),
    ok: result.ok,
    ...endOf(result),
    ...refusal,
  };
}

/** How a command or a called worker ended. A tool may succeed although its command failed. */
function endOf({ data: { status, exitCode } }: ToolResult): Pick<RecordOf<"tool_used">, "status" | "exitCode"> {
  if (typeof status !== "string") return {};
  return { status, exitCode: typeof exitCode === "number" ? exitCode : null };
}

function shown(value: unknown): string {
  // An input that is nested too deeply was refused, and cannot be recorded.
  const text = typeof value === "string" ? value : isTooDeep(value) ? "…" : (JSON.stringify(value) ?? "");
  return text.slice(0, MAX_TEXT);
}

/**
 * One worker's sandbox, used through tools: files on the host's side of it, and commands in a cell of its own that is
 * started with the first of them. Both see the same directories with the same rights.
 */
export class Session implements AsyncDisposable {
  readonly #request: SessionParts;
  readonly #output: OutputDir;
  readonly #over = new AbortController();
  readonly #cell: CommandCell;
  readonly #hands: SessionHands;
  /** What listens in its cell. */
  readonly ports: SessionPorts;
  /** Null if a command's own tools are reported by its calls and its changes. */
  readonly #record: RecordTool | null;
  /** Null: none can be taken. */
  readonly snapshots: SessionSnapshots | null;
  /** What uses it now, and what that is ended with. */
  readonly #acting = new Set<Promise<unknown>>();
  #interrupt = new AbortController();
  /** Settles when it may be used again. */
  #still: Promise<void> | null = null;
  readonly #stills = new PQueue({ concurrency: 1 });

  static async open(request: SessionParts): Promise<Session> {
    return new Session(request, await OutputDir.make(request.env.ownerDir, request.job.run));
  }

  private constructor(request: SessionParts, output: OutputDir) {
    const { job, stage, network, env } = request;
    const baseline = new DiskBaseline();
    const serviceFor = (plan: Plan): BrokerService => this.#service(plan);
    this.#request = request;
    this.#output = output;
    this.#record = request.standalone ? toolRecorder(job, env) : null;
    this.#cell = new CommandCell({ job, env, output, baseline, stage, network, serviceFor });
    this.ports = new SessionPorts(job.worker, this.#cell);
    this.#hands = new SessionHands({ ...request, output, baseline, cell: this.#cell, over: this.#over.signal });
    const still: SnapshotParts["still"] = (act) => this.#stilled(act);
    this.snapshots =
      request.snapshots === undefined ? null : new SessionSnapshots({ ...request.snapshots, job, stage, env, still });
  }

  /** Its files for tools: what it was granted, and the long output of commands as soon as there is any. */
  get files(): GuardedFiles {
    return this.#hands.files;
  }

  /** What it may do now. */
  get sandbox(): Sandbox {
    return this.#request.stage.sandbox;
  }

  /** What its commands did on their network so far; null if it has no allow list. */
  get network(): NetworkReport | null {
    return this.#request.network.report().network ?? null;
  }

  /**
   * Any tool, by name, on raw input. A bug is reported to the user, and answered without details. Rejects for engine errors. `onOutput` receives each piece of
   * what a command prints as it comes.
   */
  async runTool(name: string, rawInput: unknown, signal: AbortSignal, onOutput?: OnOutput): Promise<ToolResult> {
    return await this.#runTool({ name, rawInput, only: null, onOutput }, signal);
  }

  /** A worker of the job's `calls`, as a tool of its own: available to any job that may call it, whatever its tools are. */
  async callWorker(request: CallToolRequest, signal: AbortSignal): Promise<ToolResult> {
    const call = () => this.#use({ name: "call_worker", rawInput: request, only: null }, signal);
    return await this.#recorded(request.worker, request, call, "call_worker");
  }

  /** Runs a command without a tool's record: for programs. */
  async exec(request: ExecToolRequest, signal: AbortSignal, onOutput?: OnOutput): Promise<ExecToolAnswer> {
    return await this.#act(signal, (stopped) => this.#hands.exec(request, stopped, onOutput));
  }

  /** The commands that were started and not waited for. */
  get started(): StartedCommands {
    return this.#cell.started;
  }

  /** Starts a command, by the rules of the tool `exec`. `isOwn`: see {@link SessionHands.start}. @throws ToolRefusal, EngineTrouble */
  async start(request: CommandStart, isOwn: boolean, signal: AbortSignal): Promise<StartedCommand> {
    const { command, cwd } = request;
    return await this.#act(signal, (stopped) =>
      this.#done("exec", { command, cwd }, stopped, () => this.#hands.start(request, isOwn, stopped)),
    );
  }

  /** Writes a file or a folder, as `write_file` could. @throws ToolRefusal, SandboxError, EngineTrouble */
  async put(sent: Parameters<typeof putInto>[1], signal: AbortSignal): Promise<MovedContent> {
    return await this.#act(signal, (stopped) =>
      this.#done("write_file", { path: sent.path }, stopped, () =>
        this.#cell.inCell((opened) => putInto(this.#place(opened), sent, stopped), stopped),
      ),
    );
  }

  /** A file or a folder, as `read_file` could read it, of at most so many bytes, an archive included. `taken`: settles when the content is not needed any more. @throws ToolRefusal, SandboxError, EngineTrouble */
  async get(
    path: string,
    taken: Promise<void>,
    signal: AbortSignal,
    maxBytes = Number.POSITIVE_INFINITY,
  ): ReturnType<typeof getFrom> {
    while (this.#still !== null) await this.#still;
    const stopped = AbortSignal.any([signal, this.#over.signal, this.#interrupt.signal]);
    return await this.#done("read_file", { path }, stopped, async () => {
      const found = Promise.withResolvers<Awaited<ReturnType<typeof getFrom>>>();
      const left = new AbortController();
      void taken.then(() => left.abort(new Error("the content is not needed any more")));
      const until = AbortSignal.any([stopped, left.signal]);
      const used = this.#cell.inCell(async (opened) => {
        found.resolve(await getFrom(this.#place(opened), path, maxBytes, until));
        await taken;
      }, stopped);
      used.catch(found.reject);
      return await found.promise;
    });
  }

  get isPaused(): boolean {
    return this.#cell.isPaused;
  }

  /** Stops everything in its cell, or lets it continue. False: something may run. */
  async pause(isPaused: boolean): Promise<boolean> {
    return await this.#cell.pause(isPaused);
  }

  #place({ cell, contents, search, plan }: OpenSessionCell): TransferPlace {
    return { cell, contents, search, plan, files: this.files, sandbox: this.sandbox };
  }

  /** Does what is a use of a tool in another form, if the worker has that tool, and records it as such. */
  async #done<T>(tool: ToolName, on: object, signal: AbortSignal, act: () => Promise<T>): Promise<T> {
    const { worker } = this.#request.job;
    const done: T[] = [];
    let refusal: unknown;
    const result = await this.#recorded(tool, on, async () => {
      if (!allowedTools(worker).includes(tool)) return notOffered(tool, worker);
      try {
        done.push(await act());
        return { ok: true, text: "", data: {} };
      } catch (error) {
        if (signal.aborted) return CANCELLED;
        if (!(error instanceof ToolRefusal || error instanceof SandboxError)) throw error;
        refusal = error;
        return { ok: false, code: error.code, message: error.message, data: {} };
      }
    });
    if (result.ok) return done[0] as T;
    throw refusal ?? new ToolRefusal(result.code, result.message);
  }

  /** Records an attempt to use a tool that does not exist, or a request for a tool that cannot be parsed. */
  recordUnmet(name: string, rawInput: unknown, code: string, message: string): void {
    this.#record?.(name, rawInput, { ok: false, code, message, data: {} });
  }

  /** The session's cell, started if there is none. */
  async cell(signal: AbortSignal): Promise<OpenSessionCell> {
    await this.#still;
    this.#over.signal.throwIfAborted();
    return await this.#cell.open(signal);
  }

  /** Ends the tools that still run, and removes everything of the session. */
  async [Symbol.asyncDispose](): Promise<void> {
    const { job, env } = this.#request;
    this.#over.abort(new Error("the session has ended"));
    this.ports.end();
    await within(this.#hands.idle(), ENDING_MS);
    try {
      await this.#cell[Symbol.asyncDispose]();
    } finally {
      this.#hands[Symbol.dispose]();
      await this.#output[Symbol.asyncDispose]();
      if (job.parent === null) await env.git?.endTree(job.tree);
    }
  }

  /** A failed tool may have acted before it failed: it is recorded too. A bug must not end the worker, nor other runs. */
  async #recorded(name: string, rawInput: unknown, use: () => Promise<ToolResult>, tool = name): Promise<ToolResult> {
    const { job, env } = this.#request;
    const begunAt = env.now();
    const measured = (code: string | null): void =>
      env.emit({
        type: "measured",
        ...identityOf(job),
        measure: { what: "tool", tool, ms: env.now() - begunAt, code },
      });
    try {
      const result = this.#masked(await use());
      this.#record?.(name, rawInput, result);
      measured(result.ok ? null : result.code);
      return result;
    } catch (error) {
      this.#record?.(name, rawInput, { ...BROKEN_OFF, message: String(error) });
      measured(BROKEN_OFF.code);
      if (error instanceof EngineTrouble) throw error;
      env.emit({
        type: "trouble",
        ...identityOf(job),
        detail: `internal error in the tool ${name}: ${bugText(error)}`,
      });
      return { ...BROKEN_OFF, message: BROKEN_OFF_MESSAGE };
    }
  }

  /** A picture stays as it is. */
  #masked(result: ToolResult): ToolResult {
    const { job, env } = this.#request;
    if (!result.ok || result.image === undefined) return env.masking.value(job.root, result);
    const { image, ...rest } = result;
    return { ...env.masking.value(job.root, rest), image };
  }

  async #runTool(call: ToolCall, signal: AbortSignal): Promise<ToolResult> {
    const { worker } = this.#request.job;
    const { name, rawInput } = call;
    const allowed: readonly string[] = allowedTools(worker);
    return await this.#recorded(name, rawInput, async () =>
      allowed.includes(name) ? await this.#use(call, signal) : notOffered(name, worker),
    );
  }

  async #use(call: ToolCall, signal: AbortSignal): Promise<ToolResult> {
    return await this.#act(signal, async (stopped) => {
      if (stopped.aborted) return CANCELLED;
      try {
        return await this.#hands.use(call, stopped);
      } catch (error) {
        // Each operation rejects in its own manner when it is stopped.
        if (stopped.aborted) return CANCELLED;
        throw error;
      }
    });
  }

  /** Uses it, as soon as nobody needs it to be still. The signal given is aborted too if somebody does. */
  async #act<T>(signal: AbortSignal, act: (stopped: AbortSignal) => Promise<T>): Promise<T> {
    while (this.#still !== null) await this.#still;
    const acting = act(AbortSignal.any([signal, this.#over.signal, this.#interrupt.signal]));
    this.#acting.add(acting);
    try {
      return await acting;
    } finally {
      this.#acting.delete(acting);
    }
  }

  /** Ends all that runs in it, and acts while nothing can write. What comes meanwhile waits. */
  async #stilled<T>(act: () => Promise<T>): Promise<T> {
    return await this.#stills.add(async () => {
      this.#over.signal.throwIfAborted();
      const over = Promise.withResolvers<void>();
      this.#still = over.promise;
      this.#interrupt.abort(new Error("the session stands still for a snapshot"));
      try {
        const ended = Promise.all([this.#cell.started.end(), Promise.allSettled(this.#acting)]);
        if ((await within(ended, ENDING_MS)) === null) throw new ToolRefusal("SESSION_BUSY", STILL_BUSY);
        const alone = () => this.#cell.betweenCells(act, this.#over.signal);
        return await this.#hands.withoutFiles(alone);
      } finally {
        this.#interrupt = new AbortController();
        this.#still = null;
        over.resolve();
      }
    });
  }

  /** Answers the programs in the session's cell at their socket. */
  #service(plan: Plan): BrokerService {
    const cell = this.#cell;
    const { job, grantee, stage, network, env, call } = this.#request;
    const around = surroundingsOf(job, env);
    return {
      call: (request, signal) =>
        this.#act(signal, (stopped) => cell.asRunning(() => call(lessBy(network.limit, request), stopped))),
      tool: async (name, input, signal) =>
        // Its answer would come to a program that runs there already.
        name === "exec"
          ? await this.#recorded(name, input, async () => EXEC_WITHIN_EXEC)
          : await cell.asRunning(() => this.#runTool({ name, rawInput: input, only: network.limit }, signal)),
      access: (request, signal) =>
        this.#act(signal, (stopped) =>
          cell.asRunning(() => requestAccess(request, grantee, around, stopped, network.limit)),
        ),
      sandbox: () => {
        const { limit } = network;
        return sandboxView(job, limit === null ? stage.sandbox : commandSandbox(stage.sandbox, limit), plan);
      },
      trouble: (detail) => env.emit({ type: "trouble", ...identityOf(job), detail }),
    };
  }
}

const CANCELLED: ToolResult = { ok: false, code: "CANCELLED", message: "It was cancelled.", data: {} };

const STILL_BUSY = "What uses the session does not end: try again, or stop the session.";

const BROKEN_OFF = { ok: false, code: "INTERNAL", data: {} } as const;

const BROKEN_OFF_MESSAGE =
  "An internal error in Corral ended this use of the tool. It may be done in part. The user sees the details; do not repeat the same request.";

const EXEC_WITHIN_EXEC: ToolResult = {
  ok: false,
  code: "EXEC_WITHIN_EXEC",
  message: "This program was started by `exec` and already runs in that container: run the command directly.",
  data: {},
};
