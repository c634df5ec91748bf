import { AsyncLocalStorage } from "node:async_hooks";
import PQueue from "p-queue";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { within } from "../../platform/within.ts";
import { commandSandbox } from "../../sandbox/sandbox.ts";
import { type ExecFacts, hintsFor } from "../../tools/exec-hints/wording.ts";
import type { ExecToolAnswer, ExecToolRequest } from "../../tools/hands.ts";
import { inTurn } from "../model/grantee.ts";
import { identityOf } from "../model/job.ts";
import { checkedCommand } from "./checked-command.ts";
import { type CommandResult, type Commands, execCommand, type OnOutput } from "./exec-command.ts";
import { type OpenSessionCell, openSessionCell, type SessionCellRequest } from "./session-cell.ts";

type Context = ReturnType<typeof AsyncLocalStorage.snapshot>;

/** The context outside of any command. */
const OUTSIDE: Context = AsyncLocalStorage.snapshot();

/** How long what was stopped may take to end. Every part of it is bounded by itself; this bounds what has a bug. */
export const ENDING_MS = 45_000;

/** A session's cell: started with the first command, and again if it was lost, has ended or is out of date. */
export class CommandCell implements Commands, AsyncDisposable {
  readonly #options: SessionCellRequest;
  /** One command at a time: what ends one ends everything in the cell. */
  readonly #commands = new PQueue({ concurrency: 1 });
  #cell: Promise<OpenSessionCell> | null = null;
  #isStale = false;
  #commandCount = 0;
  #running: Context = OUTSIDE;

  constructor(options: SessionCellRequest) {
    this.#options = options;
  }

  /** `signal` ends its own command, even if that still waits for its turn. */
  async exec(request: ExecToolRequest, signal: AbortSignal, onOutput: OnOutput): Promise<ExecToolAnswer> {
    const run = async (): Promise<ExecToolAnswer> => {
      this.#running = AsyncLocalStorage.snapshot();
      try {
        return await this.#execNow(request, signal, onOutput);
      } finally {
        this.#running = OUTSIDE;
      }
    };
    try {
      return await inTurn(this.#commands, run, signal);
    } catch (error) {
      if (signal.aborted && error === signal.reason) return unstartedAnswer("cancelled", false);
      throw error;
    }
  }

  /**
   * Does what a program in the cell asks for, in the async context of the command that runs now: which client is asked
   * for consent may depend on it. The socket's own context is that of the command that happened to open the cell.
   */
  asRunning<T>(act: () => T): T {
    return this.#running(act);
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
    await within(this.#commands.onIdle(), ENDING_MS);
    await this.#close();
  }

  async #execNow(request: ExecToolRequest, signal: AbortSignal, onOutput: OnOutput): Promise<ExecToolAnswer> {
    const { job, env, output, stage, network } = this.#options;
    const begunAt = env.now();
    const replaced = await this.#closeUnfit();
    let opened: OpenSessionCell;
    try {
      opened = await this.open(signal);
    } catch (error) {
      if (signal.aborted) return unstartedAnswer("cancelled", replaced);
      if (!(error instanceof EngineTrouble)) throw error;
      this.#tell(error.message);
      return unstartedAnswer("lost", replaced);
    }
    this.#commandCount += 1;
    const bounds = { id: String(this.#commandCount), leftMs: job.deadline - begunAt, onOutput };
    const command = checkedCommand(request, stage.sandbox, opened.plan, bounds);
    const limit = request.network ?? null;
    using _ = network.limitTo(limit);
    const ended = await execCommand(opened.cell, command, output, { signal, overDisk: opened.overDisk });
    const result = (await opened.isOverDisk()) ? { ...ended, status: "disk_limit" as const, cellUsable: false } : ended;
    if (result.trouble !== null) this.#tell(result.trouble);
    if (!result.cellUsable) await this.#close();
    const cellReplaced = replaced || !result.cellUsable;
    // Hosts may have been granted or revoked since the cell was opened, and this command may have fewer.
    const { sandbox } = stage;
    const facts = { ...opened.facts, network: (limit === null ? sandbox : commandSandbox(sandbox, limit)).network };
    return answerOf(result, facts, { cellReplaced, durationMs: Math.round(env.now() - begunAt) });
  }

  /** Removes a cell that has ended by itself since the last command, or is out of date. True if it did. */
  async #closeUnfit(): Promise<boolean> {
    const cell = await this.#cell?.catch(() => null);
    if (!cell || (!this.#isStale && !cell.hasEnded())) return false;
    await this.#close();
    return true;
  }

  async #close(): Promise<void> {
    const opening = this.#cell;
    this.#cell = null;
    this.#isStale = false;
    // The error of a cell that could not be opened went to the command that wanted it.
    const cell = await opening?.catch(() => null);
    await cell?.[Symbol.asyncDispose]();
  }

  #tell(detail: string): void {
    this.#options.env.emit({ type: "trouble", ...identityOf(this.#options.job), detail });
  }
}

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
