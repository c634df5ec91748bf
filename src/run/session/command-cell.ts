import { AsyncLocalStorage } from "node:async_hooks";
import PQueue from "p-queue";
import type { Stage } from "../../changes/stage.ts";
import { MAX_STAGED_DEPTH } from "../../changes/view/base-tree.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { NotShown } from "../../files/model/files.ts";
import { countNotShown } from "../../files/namespace.ts";
import type { DiskBaseline } from "../../isolation/disk/disk-watch.ts";
import type { Plan } from "../../isolation/plan/plan.ts";
import { canStartCommands } from "../../isolation/plan/plan-for.ts";
import type { SessionCell } from "../../isolation/port/cell.ts";
import { EngineAbsent, EngineTrouble } from "../../isolation/port/driver.ts";
import { onAbort, within } from "../../platform/within.ts";
import { commandSandbox, grantedSandbox, type Sandbox } from "../../sandbox/sandbox.ts";
import type { SecretSearch } from "../../secrets/read-secret.ts";
import { formatBytes } from "../../text/amounts.ts";
import { present } from "../../text/present.ts";
import { type ExecFacts, hintsFor } from "../../tools/exec-hints.ts";
import type { ExecToolAnswer, ExecToolRequest } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { BrokerService } from "../cell/broker.ts";
import { type OpenedCell, openCell, sessionCell } from "../cell/open-cell.ts";
import { writableIn } from "../cell/prepare.ts";
import type { RunNetwork } from "../cell/run-network.ts";
import { refusedOrigins } from "../changes/lent-attachments.ts";
import type { CellHost, Records } from "../model/environment.ts";
import { inTurn } from "../model/grantee.ts";
import { identityOf, inCell, type Job, newRunId } from "../model/job.ts";
import { maskedSession } from "../model/masked-output.ts";
import { describeAll, refusalError } from "../model/result.ts";
import { checkedCommand } from "./checked-command.ts";
import { type CommandResult, type Commands, execCommand, type OnOutput } from "./exec-command.ts";
import { usefulTools } from "./offered-tools.ts";
import { type CommandStart, type StartExec, type StartedCommand, StartedCommands } from "./started-commands.ts";
import type { OutputDir } from "./write-room.ts";

type Context = ReturnType<typeof AsyncLocalStorage.snapshot>;

/** The context outside of any command. */
const OUTSIDE: Context = AsyncLocalStorage.snapshot();

/** Commands of one session at once; others wait. The cell has room for as many in the background. */
const MAX_AT_ONCE = 16;

/** How long what was stopped may take to end. Every part of it is bounded by itself; this bounds what has a bug. */
export const ENDING_MS = 45_000;

/** A session's cell: started with the first command, and again if it was lost, has ended or is out of date. */
export class CommandCell implements Commands, AsyncDisposable {
  readonly started = new StartedCommands();
  isPaused = false;
  readonly #options: SessionCellRequest;
  readonly #commands = new PQueue({ concurrency: MAX_AT_ONCE });
  /** A command with less network than the session has it for all: what connects in the cell is not known by its command. */
  readonly #limited = new PQueue({ concurrency: 1 });
  /** A cell is looked at, replaced and opened by one command at a time. */
  readonly #opening = new PQueue({ concurrency: 1 });
  readonly #running = new Map<Promise<unknown>, Context>();
  #cell: Promise<OpenSessionCell> | null = null;
  #isStale = false;
  #commandCount = 0;

  constructor(options: SessionCellRequest) {
    this.#options = options;
  }

  /** `signal` ends its own command, even if that still waits for its turn. */
  async exec(request: ExecToolRequest, signal: AbortSignal, onOutput: OnOutput): Promise<ExecToolAnswer> {
    const now = (): Promise<ExecToolAnswer> => this.#execNow(request, signal, onOutput);
    // What it is granted, all in the cell have: it waits for the others, ends what is left, and none begins meanwhile.
    const alone = () =>
      inTurn(
        this.#opening,
        async () => {
          await this.#othersEnded(signal);
          return await this.#execNow(request, signal, onOutput, true);
        },
        signal,
      );
    const limited = request.network === undefined ? now : () => inTurn(this.#limited, now, signal);
    try {
      return await inTurn(this.#commands, request.granted === undefined ? limited : alone, signal);
    } catch (error) {
      if (signal.aborted && error === signal.reason) return unstartedAnswer("cancelled", false);
      throw error;
    }
  }

  /**
   * Does what a program in the cell asks for, in the async context of the last command that began and still runs: which client is asked
   * for consent may depend on it. The socket's own context is that of the command that happened to open the cell.
   */
  asRunning<T>(act: () => T): T {
    return ([...this.#running.values()].at(-1) ?? OUTSIDE)(act);
  }

  /** The cell, started if there is none. */
  async open(signal: AbortSignal): Promise<OpenSessionCell> {
    signal.throwIfAborted();
    if (this.#cell !== null) return await this.#cell;
    const opening = openSessionCell(this.#options, signal);
    this.#cell = opening;
    this.#isStale = false;
    try {
      return await opening;
    } catch (error) {
      if (this.#cell === opening) this.#cell = null;
      throw error;
    }
  }

  replaceBeforeNext(): boolean {
    this.#isStale = this.#cell !== null;
    return this.#isStale;
  }

  get isStale(): boolean {
    return this.#isStale;
  }

  endNow(): void {
    if (!this.replaceBeforeNext()) return;
    // A cell that could not be opened shows nothing; one that cannot be killed is removed before the next command.
    void this.#cell?.then((cell) => cell.kill()).catch(() => {});
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await within(Promise.all([this.#commands.onIdle(), this.started.end()]), ENDING_MS);
    await this.#close();
  }

  /** Starts a command, and does not wait for it. Rejects with `ToolRefusal` or `EngineTrouble`. */
  async start(request: CommandStart, signal: AbortSignal): Promise<StartedCommand> {
    const { job, env, stage } = this.#options;
    if (request.network !== undefined)
      throw new ToolRefusal(
        "BAD_NETWORK",
        "A command that is started has the network of its session. Use the tool exec.",
      );
    const over = Promise.withResolvers<void>();
    try {
      const start: StartExec = async (onOutput) => {
        const { opened } = await this.#cellFor(request.isBackground ? null : over.promise, signal);
        const bounds = { id: "", leftMs: job.deadline - env.now(), onOutput };
        const checked = checkedCommand(request, stage.sandbox, opened.plan, bounds);
        const { argv, cwd, env: variables, timeoutMs, maxOutputBytes } = checked;
        const { tty, hasInput } = request;
        const given = { ...present({ tty }), ...(hasInput || tty !== undefined ? {} : { stdin: new Uint8Array() }) };
        return {
          exec: await opened.cell.exec({ argv, cwd, env: variables, ...given, onOutput }),
          timeoutMs,
          maxOutputBytes,
        };
      };
      const command = await this.started.start(request, start, (detail) => this.#tell(detail));
      void command.ended.then(() => over.resolve());
      return command;
    } catch (error) {
      over.resolve();
      if (!(error instanceof EngineAbsent)) throw error;
      this.#tell(error.message);
      throw new ToolRefusal("ENGINE_UNAVAILABLE", NO_ENGINE);
    }
  }

  /** Uses the cell, which is not replaced meanwhile. */
  async inCell<T>(act: (opened: OpenSessionCell) => Promise<T>, signal: AbortSignal): Promise<T> {
    const over = Promise.withResolvers<void>();
    using _ = { [Symbol.dispose]: () => over.resolve() };
    return await act((await this.#cellFor(over.promise, signal)).opened);
  }

  /** The cell as it is; null if none runs. It may be replaced at any time. */
  async running(): Promise<OpenSessionCell | null> {
    const opened = (await this.#cell?.catch(() => null)) ?? null;
    return opened?.hasEnded() === false ? opened : null;
  }

  /** Acts while there is no cell: what ran in one has ended. The next command starts another. */
  async betweenCells<T>(act: () => Promise<T>, signal: AbortSignal): Promise<T> {
    const between = async (): Promise<T> => {
      await this.#close();
      return await act();
    };
    return await inTurn(this.#opening, between, signal);
  }

  /** Stops all that commands have started in the cell, or lets it continue. False: it may run. */
  async pause(isPaused: boolean): Promise<boolean> {
    this.isPaused = isPaused;
    const opened = await this.#cell?.catch(() => null);
    return opened === undefined || opened === null || (await opened.cell.signalAll(isPaused ? "SIGSTOP" : "SIGCONT"));
  }

  /** The cell for a command that begins now. It is not replaced until `over` has settled; null: it may be at once. */
  async #cellFor(over: Promise<void> | null, signal: AbortSignal): Promise<FoundCell> {
    return await inTurn(this.#opening, () => this.#cellNow(over, signal), signal);
  }

  async #cellNow(over: Promise<void> | null, signal: AbortSignal): Promise<FoundCell> {
    if (this.isPaused) throw new ToolRefusal("SESSION_PAUSED", "The session is paused. Resume it first.");
    const replaced = await this.#closeUnfit(signal);
    const opened = await this.open(signal);
    if (over !== null) {
      this.#running.set(over, AsyncLocalStorage.snapshot());
      void over.then(() => this.#running.delete(over));
    }
    return { opened, replaced };
  }

  async #execNow(
    request: ExecToolRequest,
    signal: AbortSignal,
    onOutput: OnOutput,
    isAlone = false,
  ): Promise<ExecToolAnswer> {
    const { job, env, output, stage, network } = this.#options;
    const begunAt = env.now();
    let found: FoundCell;
    const over = Promise.withResolvers<void>();
    using _over = { [Symbol.dispose]: () => over.resolve() };
    try {
      found = await (isAlone ? this.#cellNow(over.promise, signal) : this.#cellFor(over.promise, signal));
    } catch (error) {
      if (signal.aborted) return unstartedAnswer("cancelled", false);
      if (!(error instanceof EngineTrouble)) throw error;
      this.#tell(error.message);
      if (error instanceof EngineAbsent) throw new ToolRefusal("ENGINE_UNAVAILABLE", NO_ENGINE);
      return unstartedAnswer("lost", false);
    }
    const { opened, replaced } = found;
    this.#commandCount += 1;
    const bounds = { id: String(this.#commandCount), leftMs: job.deadline - begunAt, onOutput };
    const command = checkedCommand(request, stage.sandbox, opened.plan, bounds);
    const limit = request.network ?? null;
    // What earlier commands left there would have the hosts too.
    if (request.granted !== undefined && !(await opened.cell.signalAll("SIGKILL")))
      return await this.#withoutOthers(request, signal, onOutput);
    using _ = network.limitTo(limit, request.granted);
    const ended = await execCommand(opened.cell, command, output, { signal, overDisk: opened.overDisk });
    const result = (await opened.isOverDisk()) ? { ...ended, status: "disk_limit" as const, cellUsable: false } : ended;
    if (result.trouble !== null) this.#tell(result.trouble);
    if (!result.cellUsable) await this.#close(opened);
    const cellReplaced = replaced || !result.cellUsable;
    // Hosts may have been granted or revoked since the cell was opened, and this command may have fewer.
    const sandbox = grantedSandbox(stage.sandbox, request.granted);
    const facts = { ...opened.facts, network: (limit === null ? sandbox : commandSandbox(sandbox, limit)).network };
    return answerOf(result, facts, { cellReplaced, durationMs: Math.round(env.now() - begunAt) });
  }

  /** In a cell in which nothing can be left. */
  async #withoutOthers(request: ExecToolRequest, signal: AbortSignal, onOutput: OnOutput): Promise<ExecToolAnswer> {
    await this.#close();
    return { ...(await this.#execNow(request, signal, onOutput, true)), cellReplaced: true };
  }

  /** Removes a cell that has ended by itself since the last command, or is out of date when its commands have ended. True if it did. */
  async #closeUnfit(signal: AbortSignal): Promise<boolean> {
    const cell = await this.#cell?.catch(() => null);
    if (!cell || (!this.#isStale && !cell.hasEnded())) return false;
    if (!cell.hasEnded()) await this.#othersEnded(signal);
    await this.#close(cell);
    return true;
  }

  async #othersEnded(signal: AbortSignal): Promise<void> {
    const cancelled = Promise.withResolvers<void>();
    using _ = onAbort(signal, cancelled.resolve);
    await Promise.race([Promise.all(this.#running.keys()), cancelled.promise]);
    signal.throwIfAborted();
  }

  /** Removes the cell, if it is still this one, or whichever it is. */
  async #close(only?: OpenSessionCell): Promise<void> {
    const opening = this.#cell;
    // The error of a cell that could not be opened went to the command that wanted it.
    const cell = await opening?.catch(() => null);
    if (this.#cell !== opening || (only !== undefined && cell !== only)) return;
    this.#cell = null;
    this.#isStale = false;
    await cell?.[Symbol.asyncDispose]();
  }

  #tell(detail: string): void {
    this.#options.env.emit({ type: "trouble", ...identityOf(this.#options.job), detail });
  }
}

interface FoundCell {
  readonly opened: OpenSessionCell;
  readonly replaced: boolean;
}

/** The user is told why: the reason may name paths of the host. */
const NO_ENGINE =
  "No container engine could be used, so no command can run; nothing was begun. The tools for files need none.";

/** The tool's answer for a command that has ended, with hints about the sandbox. */
function answerOf(
  result: CommandResult,
  facts: ExecFacts,
  { cellReplaced, durationMs }: Pick<ExecToolAnswer, "cellReplaced" | "durationMs">,
): ExecToolAnswer {
  const { status, exitCode, signal } = result;
  const [stdout, stderr] = [result.stdout.text, result.stderr.text];
  return {
    status,
    exitCode,
    signal,
    stdout,
    stderr,
    cut: result.stdout.cut || result.stderr.cut,
    hints: hintsFor({ stdout, stderr, exitCode, signal, status }, facts),
    cellReplaced,
    durationMs,
  };
}

/** The answer for a command that did not start. */
function unstartedAnswer(status: "cancelled" | "lost", cellReplaced: boolean): ExecToolAnswer {
  const nothing = { exitCode: null, signal: null, stdout: "", stderr: "", cut: false, hints: [], durationMs: 0 };
  return { status, ...nothing, cellReplaced };
}

interface SessionCellRequest {
  readonly job: Job;
  readonly env: CellHost & Records;
  /** Where commands' long output is kept on the host. */
  readonly output: OutputDir;
  /** The usage before the session's first cell: all its cells and the tools share one disk limit. */
  readonly baseline: DiskBaseline;
  /** Its sandbox may change between two cells. */
  readonly stage: Stage;
  readonly network: RunNetwork;
  readonly serviceFor: (plan: Plan) => BrokerService;
}

/** A session's cell, which waits for commands; disposing removes it and its socket. */
export interface OpenSessionCell
  extends Pick<OpenedCell<SessionCell>, "plan" | "hasEnded" | "overDisk" | "isOverDisk" | "kill">,
    AsyncDisposable {
  readonly cell: SessionCell;
  /** The same, with the standard output of commands as it is: whoever passes it on ends at a secret that {@link search} finds in it. */
  readonly contents: SessionCell;
  /** For the secrets that are in the cell now; null: none are. */
  readonly search: () => SecretSearch | null;
  readonly facts: ExecFacts;
}

/** Rejects with `ToolRefusal` if there can be no such cell. */
async function openSessionCell(
  { job, stage, network, output, baseline, serviceFor, env }: SessionCellRequest,
  signal: AbortSignal,
): Promise<OpenSessionCell> {
  const { sandbox } = stage;
  const owner = identityOf(job);
  const { accept, follow, services } = network;
  const pipes = canStartCommands(sandbox) ? { commandsDir: output.pipes } : {};
  const kind = sessionCell(stage, { outputDir: output.path, ...pipes }, baseline);
  const opened = await openCell(
    { job: { ...job, run: newRunId() }, sandbox, kind, owner, signal, accept, follow, services },
    env,
  );
  if (!opened.ok) throw refusal(opened.violations);
  try {
    // If the engine was opened for this cell, it was not known before what of it is on this host.
    const late = refusedOrigins(sandbox, env);
    if (late.length > 0) throw refusal(late);
    const { plan } = opened;
    if (await opened.isOverDisk()) throw new ToolRefusal("DISK_LIMIT", overDiskBefore(plan));
    const inside = opened.begin(owner, serviceFor(plan));
    const cell = maskedSession(inside, env.masking, owner.root);
    const contents = maskedSession(inside, env.masking, owner.root, "stderr");
    const search = (): SecretSearch | null => env.masking.search(owner.root)?.() ?? null;
    return { ...opened, cell, contents, search, facts: factsOf(plan, job.worker, sandbox, await notShownIn(stage)) };
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}

function overDiskBefore({ limits }: Plan): string {
  const limit = formatBytes(limits.diskBytes);
  return `The run has written more than its disk limit of ${limit}. Delete files (delete_file) before you run commands.`;
}

function refusal(violations: Parameters<typeof describeAll>[0]): ToolRefusal {
  const described = describeAll(violations);
  const { code, message } = refusalError(described);
  return new ToolRefusal(code, message, { violations: described });
}

/** What the views leave out, by the path of the mount. */
async function notShownIn({ sandbox, hidden, paths }: Stage): Promise<Map<string, NotShown>> {
  const counts = new Map<string, NotShown>();
  for (const path of paths) counts.set(path, await countNotShown(sandbox, hidden.below(path, MAX_STAGED_DEPTH)));
  return counts;
}

function factsOf(
  plan: Plan,
  worker: WorkerDefinition,
  sandbox: Sandbox,
  notShown: ReadonlyMap<string, NotShown>,
): ExecFacts {
  const mounts = plan.mounts.filter((mount) => mount.origin === "sandbox");
  return {
    readablePaths: mounts.map((mount) => mount.path),
    writablePaths: writableIn(plan, sandbox),
    constraints: sandbox.mounts
      .filter(({ suffixes, maxFileBytes }) => suffixes !== undefined || maxFileBytes !== undefined)
      .map(({ path, suffixes, maxFileBytes }) => ({
        path: inCell(path, sandbox),
        suffixes,
        maxFileBytes,
        notShown: notShown.get(path),
      })),
    workingDir: plan.workingDir,
    rooted: sandbox.rooted,
    mayAsk: worker.dynamic !== null && usefulTools(worker, sandbox).includes("request_access"),
    network: sandbox.network,
    memoryBytes: plan.limits.memoryBytes,
    timeoutMs: plan.limits.timeoutMs,
    outputBytes: plan.limits.outputBytes,
    diskBytes: plan.limits.diskBytes,
  };
}
