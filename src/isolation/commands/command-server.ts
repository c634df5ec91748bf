import { randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import { written } from "../../platform/byte-streams.ts";
import { within } from "../../platform/within.ts";
import { COMMANDS_PATH, type Plan } from "../plan/plan.ts";
import { type CellExit, type Exec, type ExecExit, type ExecRequest, KILLED } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";
import {
  type CellProcess,
  type CommandPipes,
  countRequest,
  endRequest,
  lookRequest,
  MAX_COMMANDS,
  PipeNames,
  type PipeReply,
  parseAnswer,
  REAP_REQUEST,
  runRequest,
  signalRequest,
} from "./command-pipes.ts";

/** How long what a command has left running may still write to its output, after the command's own end. */
const HELD_MS = 2000;

/**
 * Both output streams of one command. While the caller still processes what was read, neither is read: the command waits, and
 * memory does not grow.
 */
class CommandOutput {
  readonly #streams: readonly Socket[];
  readonly #ended = Promise.withResolvers<void>();
  #onOutput: ExecRequest["onOutput"];
  #open: number;
  #taking = 0;
  #onResumed: () => void = () => {};

  /** `stdout`: null if another process reads it. */
  constructor(stdout: Socket | null, stderr: Socket, onOutput: ExecRequest["onOutput"]) {
    this.#streams = stdout === null ? [stderr] : [stdout, stderr];
    this.#open = this.#streams.length;
    this.#onOutput = onOutput;
    if (stdout !== null) this.#read("stdout", stdout);
    this.#read("stderr", stderr);
  }

  /** Settles when no process holds either of them any more, and all was delivered. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /**
   * Settles when all of a command's output was delivered. Another process may hold it for longer than the command lives: then it
   * ends for the caller, and what is written later is dropped, so that this process can continue.
   */
  async drained(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      const wait = (): void => {
        clearTimeout(timer);
        timer = setTimeout(() => this.#taking === 0 && resolve(), HELD_MS);
      };
      this.#onResumed = wait;
      wait();
    });
    await Promise.race([this.ended, late]);
    clearTimeout(timer);
    this.#onResumed = () => {};
    this.#onOutput = () => {};
    for (const stream of this.#streams) stream.resume().unref();
  }

  close(): void {
    for (const stream of this.#streams) stream.destroy();
  }

  #read(name: "stdout" | "stderr", stream: Socket): void {
    stream.on("data", (chunk: Buffer) => this.#take(name, chunk));
    stream.on("error", () => {});
    stream.once("close", () => {
      this.#open -= 1;
      if (this.#open === 0) this.#ended.resolve();
    });
  }

  #take(name: "stdout" | "stderr", chunk: Buffer): void {
    const taken = this.#onOutput(name, chunk);
    if (taken === undefined) return;
    this.#taking += 1;
    for (const stream of this.#streams) stream.pause();
    void taken.then(() => {
      this.#taking -= 1;
      if (this.#taking > 0) return;
      for (const stream of this.#streams) stream.resume();
      this.#onResumed();
    });
  }
}

/** An answer is one short line. */
const MAX_ANSWER_BYTES = 4096;
/** How long the first process may take for a request that is not a command. */
const ANSWER_MS = 5000;
/** How often it takes processes that have ended, while nothing else is asked of it. */
const REAP_MS = 1000;
/** The same while something is ended from outside. */
const SOON_MS = 50;
/** How often it is asked about a command whose output has not ended. */
const LOOK_MS = 250;
/** Of one whose output has ended: at intervals that double from the first to the last. */
const FIRST_LOOK_MS = 1;
const LAST_LOOK_MS = 100;
/** How long a signal waits for commands that are about to begin. */
const BEGIN_MS = 1000;
/** What others have left and began since a command did is known as theirs by its session; of so many commands. */
const MAX_SESSIONS = 256;
/** Streams of ended commands that processes still hold; of more, the oldest is closed. */
const MAX_HELD = 32;

/** The first process of a session's cell, as a driver reaches it. */
export interface FirstProcessLink {
  /** The host path of the directory that the cell has at `COMMANDS_PATH`. */
  readonly dir: string;
  readonly write: (text: string) => void;
  readonly exit: Promise<CellExit>;
}

/** The host path of the directory of a planned cell's pipes. */
export function commandsDir({ mounts }: Plan): string {
  const mount = mounts.find(({ path }) => path === COMMANDS_PATH);
  if (mount === undefined) throw new Error("the plan has no directory for the pipes of commands");
  return mount.host;
}

/**
 * Starts commands through a cell's first process (`command-cell.ts`), without the engine (docs/architecture.md,
 * fact: commands-without-the-engine). What a command prints comes over named pipes that Corral made.
 */
export class CommandServer implements AsyncDisposable {
  readonly #link: FirstProcessLink;
  readonly #names: PipeNames;
  readonly #commands = new Map<string, RunningCommand>();
  readonly #asked = new Map<string, (answer: PipeReply) => void>();
  readonly #held = new Set<CommandOutput>();
  readonly #reaping: NodeJS.Timeout;
  #signalling: Promise<unknown> = Promise.resolve();
  #isPaused = false;
  /** Of the last commands, also of those that have ended and left something. */
  #sessions: readonly number[] = [];
  #text = "";
  #isOver = false;

  constructor(link: FirstProcessLink) {
    this.#link = link;
    this.#names = new PipeNames(link.dir);
    this.#names.prepare();
    this.#reaping = setInterval(() => link.write(REAP_REQUEST), REAP_MS).unref();
    void link.exit.then((exit) => this.#end(exit));
  }

  /** What the first process has written. */
  add(chunk: Buffer): void {
    this.#text += chunk.toString("latin1");
    for (let end = this.#text.indexOf("\n"); end >= 0; end = this.#text.indexOf("\n")) {
      const answer = parseAnswer(this.#text.slice(0, end));
      this.#text = this.#text.slice(end + 1);
      if (answer !== null) this.#settle(answer);
    }
    if (this.#text.length > MAX_ANSWER_BYTES)
      this.#end({ kind: "lost", reason: "a cell sent an answer that is too long" });
  }

  /** Resolves when the command has begun. Rejects with `EngineTrouble` if it could not. */
  async exec(request: ExecRequest): Promise<Exec> {
    if (this.#commands.size >= MAX_COMMANDS)
      throw new EngineTrouble(`a cell runs at most ${MAX_COMMANDS} commands at once`);
    const command = this.#opened(await this.#names.take(), request);
    try {
      for (let before: Promise<unknown> | null = null; before !== this.#signalling; await before)
        before = this.#signalling;
      if (this.#isOver) throw new EngineTrouble("the cell has ended");
      this.#commands.set(command.name, command);
      this.#link.write(command.request);
      await command.begun;
    } catch (error) {
      this.#forget(command);
      command.output.close();
      throw error;
    }
    const exit = command.exit.then(async (end) => {
      this.#forget(command);
      this.#hold(command.output);
      await command.output.drained();
      return end;
    });
    return {
      exit,
      write: (chunk) => (command.input === null ? undefined : written(command.input, chunk)),
      ...(command.input === null ? {} : { input: command.input }),
      closeInput: () => void command.input?.end(),
      resize: async () => {},
      signal: (signal) => this.#signal(command, signal),
    };
  }

  /** False if some may be left. */
  async signalAll(signal: NodeJS.Signals): Promise<boolean> {
    if (signal === "SIGSTOP" || signal === "SIGCONT") this.#isPaused = signal === "SIGSTOP";
    const answer = await this.#ask((name) => signalRequest(name, signal));
    return answer?.kind === "signalled" && !answer.left;
  }

  async #signal(command: RunningCommand, signal: NodeJS.Signals): Promise<boolean> {
    return await this.#whileNoneBegins(async (sessions) => {
      const process = await command.process;
      if (process === null) return true;
      const others = sessions.filter((session) => session !== process.pid);
      const answer = await this.#ask((name) =>
        endRequest(name, signal, { ...process, of: command.name }, { others, isPaused: this.#isPaused }),
      );
      return answer?.kind === "signalled" && !answer.left;
    });
  }

  /** For what signals a command's processes from outside of the cell. The first process takes those that end meanwhile: until then they count as left. */
  async whileNoneBegins(act: (sessions: readonly number[]) => Promise<boolean>): Promise<boolean> {
    return await this.#whileNoneBegins(async (sessions) => {
      const reaping = setInterval(() => this.#link.write(REAP_REQUEST), SOON_MS);
      try {
        return await act(sessions);
      } finally {
        clearInterval(reaping);
      }
    });
  }

  /**
   * Signals what one command has started, one such act after the other. `sessions`: those of all commands, also of what these left, by which its processes are
   * told from theirs. What begins meanwhile would not be known as another command's: so nothing does.
   */
  async #whileNoneBegins(act: (sessions: readonly number[]) => Promise<boolean>): Promise<boolean> {
    const before = this.#signalling;
    const acting = (async () => {
      await before;
      await within(Promise.allSettled([...this.#commands.values()].map(({ begun }) => begun)), BEGIN_MS);
      return await act(this.#sessions);
    })();
    this.#signalling = acting.catch(() => {});
    return await acting;
  }

  /** How many processes the kernel has killed for memory so far, if that is known. Null if there is no answer. */
  async oomKills(): Promise<{ readonly oomKills: number | null } | null> {
    const answer = await this.#ask(countRequest);
    return answer?.kind === "counted" ? answer : null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end({ kind: "lost", reason: "the cell was removed" });
    for (const output of this.#held) output.close();
    await this.#names.close();
  }

  async #ask(request: (name: string) => string): Promise<PipeReply | null> {
    if (this.#isOver) return null;
    const name = randomBytes(8).toString("hex");
    const { promise, resolve } = Promise.withResolvers<PipeReply>();
    this.#asked.set(name, resolve);
    this.#link.write(request(name));
    const gone = this.#link.exit.then(() => null);
    const answer = await within(Promise.race([promise, gone]), ANSWER_MS);
    this.#asked.delete(name);
    return answer;
  }

  #opened(pipes: CommandPipes, request: ExecRequest): RunningCommand {
    try {
      return new RunningCommand(pipes, request, (text) => this.#link.write(text));
    } catch (error) {
      pipes.letGo();
      if (error instanceof EngineTrouble) throw error;
      throw new EngineTrouble(`the pipes of a command could not be opened: ${(error as Error).message}`, {
        cause: error,
      });
    }
  }

  #settle(answer: PipeReply): void {
    if (answer.kind === "begun") this.#sessions = [...this.#sessions, answer.pid].slice(-MAX_SESSIONS);
    this.#asked.get(answer.name)?.(answer);
    this.#commands.get(answer.name)?.settle(answer);
  }

  /** Another process may hold its output for as long as the cell lives. */
  #hold(output: CommandOutput): void {
    this.#held.add(output);
    void output.ended.then(() => this.#held.delete(output));
    for (const oldest of this.#held) {
      if (this.#held.size <= MAX_HELD) break;
      this.#held.delete(oldest);
      oldest.close();
    }
  }

  #forget(command: RunningCommand): void {
    this.#commands.delete(command.name);
    command[Symbol.dispose]();
  }

  #end(exit: CellExit): void {
    this.#isOver = true;
    clearInterval(this.#reaping);
    for (const command of this.#commands.values()) command.cellEnded(exit);
  }
}

/** One command, from its request until its own end. */
class RunningCommand implements Disposable {
  readonly request: string;
  readonly output: CommandOutput;
  /** Null if it has no input. */
  readonly input: Socket | null;
  readonly #pipes: CommandPipes;
  readonly #write: (text: string) => void;
  readonly #begun = Promise.withResolvers<void>();
  readonly #exit = Promise.withResolvers<ExecExit>();
  #oomKillsBefore: number | null = null;
  #pid: number | null = null;
  #job: number | null = null;
  readonly #process = Promise.withResolvers<(CellProcess & { readonly job: number }) | null>();
  #start = 0;
  #timer: NodeJS.Timeout | undefined;
  #intervalMs = LOOK_MS;
  /** What it left may end its output later. */
  #isForgotten = false;

  constructor(pipes: CommandPipes, request: ExecRequest, write: (text: string) => void) {
    const hasInput = request.stdin === undefined || request.stdin.length > 0;
    this.request = runRequest(pipes.name, request, hasInput);
    this.#pipes = pipes;
    this.#write = write;
    this.#begun.promise.catch(() => {});
    this.input = hasInput ? pipes.writer() : null;
    // A command that ends without reading its input breaks the pipe; the first process reports how it ended.
    this.input?.on("error", () => {});
    const stdout = request.takesOutput === undefined ? pipes.reader("out") : null;
    this.output = new CommandOutput(stdout, pipes.reader("err"), request.onOutput);
    if (request.takesOutput !== undefined) pipes.lend("out", request.takesOutput);
    if (request.stdin !== undefined) this.input?.end(request.stdin);
    void this.output.ended.then(() => {
      this.#intervalMs = FIRST_LOOK_MS;
      this.#look();
    });
  }

  get name(): string {
    return this.#pipes.name;
  }

  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  get exit(): Promise<ExecExit> {
    return this.#exit.promise;
  }

  /** Known when it has begun; null if it never did. */
  get process(): Promise<(CellProcess & { readonly job: number }) | null> {
    return this.#process.promise;
  }

  settle(answer: PipeReply): void {
    switch (answer.kind) {
      case "begun":
        this.#oomKillsBefore = answer.oomKills;
        this.#pid = answer.pid;
        this.#start = answer.start;
        this.#pipes.letGo();
        this.#begun.resolve();
        this.#look();
        break;
      case "started":
        this.#job = answer.job;
        this.#look();
        break;
      case "refused":
        this.#begun.reject(new EngineTrouble(REFUSED));
        break;
      case "ended":
        this.#over({ kind: "exited", code: answer.code, cellAlive: true, outOfMemory: this.#isOutOfMemory(answer) });
    }
  }

  #isOutOfMemory({ code, oomKills }: Extract<PipeReply, { kind: "ended" }>): boolean {
    const before = this.#oomKillsBefore;
    return code === KILLED && before !== null && oomKills !== null && oomKills > before;
  }

  cellEnded(exit: CellExit): void {
    if (exit.kind === "lost") this.#over(exit);
    else this.#over({ kind: "exited", code: KILLED, cellAlive: false, outOfMemory: exit.outOfMemory });
  }

  [Symbol.dispose](): void {
    this.#isForgotten = true;
    clearTimeout(this.#timer);
    this.#pipes.letGo();
    this.input?.destroy();
  }

  #over(exit: ExecExit): void {
    // It may have been killed before it could say that it begins.
    this.#begun.resolve();
    this.#process.resolve(null);
    this.#exit.resolve(exit);
  }

  /** Asks now if its output has ended, because it has probably ended too; else after a while. */
  #look(): void {
    clearTimeout(this.#timer);
    if (this.#isForgotten || this.#pid === null || this.#job === null) return;
    this.#process.resolve({ pid: this.#pid, start: this.#start, job: this.#job });
    if (this.#intervalMs < LOOK_MS) this.#write(lookRequest(this.#job, this.#pid, this.name));
    this.#timer = setTimeout(() => {
      if (this.#intervalMs < LOOK_MS) this.#intervalMs = Math.min(2 * this.#intervalMs, LAST_LOOK_MS);
      else if (this.#job !== null && this.#pid !== null) this.#write(lookRequest(this.#job, this.#pid, this.name));
      this.#look();
    }, this.#intervalMs);
  }
}

const REFUSED = "the cell has as many processes as its limit allows, so the command could not be started";
