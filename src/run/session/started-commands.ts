import { randomBytes } from "node:crypto";
import type { Exec, ExecExit, ExecRequest, TerminalSize } from "../../isolation/port/cell.ts";
import { MAX_TIMER_MS, onAbort, within } from "../../platform/within.ts";
import type { ExecToolRequest } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { type Ending, endingOf, type StopReason } from "../model/result.ts";

type OnOutput = ExecRequest["onOutput"];

/** How much of what a command prints is kept, and how far a command may be ahead of the reader that it waits for. */
const KEPT_BYTES = 1024 ** 2;
/** A piece that has fewer takes what comes next. */
const SMALL_BYTES = 4096;
/** Commands of a session that run, and those that have ended and are still known. */
const MAX_STARTED = 16;
const MAX_ENDED = 64;
/** Input of one command that it has not read, and what each piece of it costs beside its bytes. */
const MAX_INPUT_BYTES = 4 * 1024 ** 2;
const PIECE_BYTES = 1024;
/** How long a command that was asked to end may take. */
const GRACE_MS = 250;
/** How long the end of one that was killed may take to be reported. */
const SILENCE_MS = 10_000;

export interface CommandStart extends Omit<ExecToolRequest, "stdin" | "granted" | "packages"> {
  /** Its input stays open until it is closed; else it is empty. */
  readonly hasInput: boolean;
  readonly tty?: TerminalSize | undefined;
  /** False: it waits for its reader, and has the time and the output of a command of the worker. */
  readonly isBackground: boolean;
}

export interface PrintedPiece {
  readonly stream: "stdout" | "stderr";
  readonly bytes: Buffer;
  /** Where it ends, in bytes of both streams together. */
  readonly end: number;
  /** Bytes before it that are kept no more. */
  readonly missingBytes: number;
}

/** What a command prints: its last part, for readers that come at any time; or all of it, for one that the command waits for. */
export class KeptOutput {
  readonly #waits: boolean;
  readonly #pieces: { stream: "stdout" | "stderr"; bytes: Buffer; end: number }[] = [];
  #bytes = 0;
  /** Where the last piece ends, and what the reader has. */
  #end = 0;
  #read = 0;
  #isOver = false;
  #news = Promise.withResolvers<void>();
  #room = Promise.withResolvers<void>();

  constructor({ waits }: { readonly waits: boolean }) {
    this.#waits = waits;
  }

  /** In bytes of both streams together. */
  get end(): number {
    return this.#end;
  }

  add(stream: "stdout" | "stderr", bytes: Buffer): Promise<void> | undefined {
    if (this.#isOver) return undefined;
    this.#end += bytes.length;
    this.#bytes += bytes.length;
    const last = this.#pieces.at(-1);
    if (last?.stream === stream && last.bytes.length < SMALL_BYTES) {
      last.bytes = Buffer.concat([last.bytes, bytes]);
      last.end = this.#end;
    } else this.#pieces.push({ stream, bytes, end: this.#end });
    while (this.#bytes > KEPT_BYTES && this.#pieces.length > 1 && !this.#waits) this.#drop();
    this.#tell();
    return this.#waits && this.#end - this.#read > KEPT_BYTES ? this.#room.promise : undefined;
  }

  /** There is no more. A command that waited continues. */
  close(): void {
    this.#isOver = true;
    this.#tell();
    this.#room.resolve();
  }

  /**
   * From a place on; with `follow` until all was printed. Empty after `idleMs` without any, so that a reader knows that it is alive. `takes`: it is
   * the reader for whom the command waits. Others look on: what they read is not lost for that one.
   */
  async *read(
    from: number,
    {
      follow,
      idleMs,
      signal,
      takes = false,
    }: { readonly follow: boolean; readonly idleMs: number; readonly signal: AbortSignal; readonly takes?: boolean },
  ): AsyncGenerator<PrintedPiece | null, void, undefined> {
    const left = Promise.withResolvers<boolean>();
    using _ = onAbort(signal, () => left.resolve(true));
    for (let at = Math.min(from, this.#end); !signal.aborted; ) {
      const piece = this.#pieces.find(({ end }) => end > at);
      if (piece !== undefined) {
        // What is printed while the reader is busy may be added to it.
        const { stream, bytes, end } = piece;
        const begins = end - bytes.length;
        const missingBytes = Math.max(0, begins - at);
        yield { stream, bytes: bytes.subarray(Math.max(0, at - begins)), end, missingBytes };
        at = end;
        if (this.#waits && takes) this.#taken(at);
        continue;
      }
      if (this.#isOver || !follow) return;
      const news = await within(Promise.race([this.#news.promise.then(() => true), left.promise]), idleMs);
      if (news === null) yield null;
    }
  }

  /** Each reader that waits looks again. */
  #tell(): void {
    const news = this.#news;
    this.#news = Promise.withResolvers();
    news.resolve();
  }

  #taken(at: number): void {
    this.#read = at;
    while ((this.#pieces[0]?.end ?? at + 1) <= at) this.#drop();
    if (this.#end - at > KEPT_BYTES) return;
    this.#room.resolve();
    this.#room = Promise.withResolvers();
  }

  #drop(): void {
    const piece = this.#pieces.shift();
    if (piece === undefined) return;
    this.#bytes -= piece.bytes.length;
  }
}

/** A command of a session that was started and is not waited for. */
export class StartedCommand {
  readonly id = randomBytes(6).toString("hex");
  readonly command: string;
  readonly startedAt: string;
  readonly isBackground: boolean;
  readonly isTerminal: boolean;
  readonly output: KeptOutput;
  /** Null while it runs. */
  ending: Ending | null = null;
  /** Settles when it has ended and all that it printed was read. Never rejects. */
  readonly ended: Promise<Ending>;
  readonly #exec: Exec;
  readonly #onOver = Promise.withResolvers<ExecExit | null>();
  #stopped: StopReason | null = null;
  #timer: NodeJS.Timeout | undefined;
  #unreadBytes = 0;
  #writing = Promise.resolve<void>(undefined);

  constructor(
    { command, isBackground, tty }: CommandStart,
    { output, exec, startedAt, timeoutMs }: StartedParts,
    trouble: (detail: string) => void,
  ) {
    this.command = command;
    this.startedAt = startedAt;
    this.isBackground = isBackground;
    this.isTerminal = tty !== undefined;
    this.output = output;
    this.#exec = exec;
    if (timeoutMs !== null) this.#timer = setTimeout(() => this.stop("timed_out"), Math.min(timeoutMs, MAX_TIMER_MS));
    this.ended = Promise.race([exec.exit, this.#onOver.promise]).then((exit) => {
      clearTimeout(this.#timer);
      if (exit?.kind === "lost" && this.#stopped === null) trouble(exit.reason);
      this.ending = endedAs(exit, this.#stopped);
      output.close();
      return this.ending;
    });
  }

  /** In the order of the calls. Settles when the command has read it, or has ended. @throws ToolRefusal INPUT_NOT_READ */
  async write(chunk: Uint8Array): Promise<void> {
    if (this.ending !== null) return;
    const bytes = chunk.length + PIECE_BYTES;
    if (this.#unreadBytes + bytes > MAX_INPUT_BYTES)
      throw new ToolRefusal(
        "INPUT_NOT_READ",
        "The command does not read the input that it has already: wait, or end it.",
      );
    this.#unreadBytes += bytes;
    this.#writing = this.#writing.then(() => (this.ending === null ? this.#exec.write(chunk) : undefined));
    await this.#writing;
    this.#unreadBytes -= bytes;
  }

  /** Behind all that was written. */
  closeInput(): void {
    void this.#writing.then(() => this.#exec.closeInput());
  }

  async resize(size: TerminalSize): Promise<void> {
    await this.#exec.resize(size);
  }

  /** It and all that it has started. False if some of it may be left, or if it has ended. */
  async signal(signal: NodeJS.Signals): Promise<boolean> {
    return this.ending === null && (await this.#exec.signal(signal));
  }

  /** Ends it with all that it has started. */
  stop(reason: StopReason): void {
    if (this.#stopped !== null || this.ending !== null) return;
    this.#stopped = reason;
    this.output.close();
    void this.#end();
  }

  async #end(): Promise<void> {
    if (await this.#exec.signal("SIGTERM").catch(() => false))
      await Promise.race([this.ended, new Promise((resolve) => setTimeout(resolve, GRACE_MS))]);
    const gone = await this.#exec.signal("SIGKILL").catch(() => false);
    this.#timer = setTimeout(() => this.#onOver.resolve(null), gone ? SILENCE_MS : 0);
  }
}

interface StartedParts {
  readonly output: KeptOutput;
  readonly exec: Exec;
  readonly startedAt: string;
  /** Null: none. */
  readonly timeoutMs: number | null;
}

function endedAs(exit: ExecExit | null, stopped: StopReason | null): Ending {
  if (exit === null || (exit.kind === "lost" && stopped !== null))
    return { status: stopped ?? "lost", exitCode: null, signal: null };
  if (exit.kind === "lost") return endingOf(exit, null);
  const usage = { cpuMs: null, memoryBytesPeak: null };
  return endingOf({ kind: "exited", code: exit.code, outOfMemory: exit.outOfMemory, usage }, stopped);
}

/** Starts a checked command in the session's cell, with its output where it is kept. */
export type StartExec = (
  onOutput: OnOutput,
) => Promise<{ readonly exec: Exec; readonly timeoutMs: number; readonly maxOutputBytes: number }>;

/** The started commands of a session. */
export class StartedCommands {
  readonly #commands = new Map<string, StartedCommand>();
  #starting = 0;

  get all(): readonly StartedCommand[] {
    return [...this.#commands.values()];
  }

  get isBusy(): boolean {
    return this.#starting > 0 || this.all.some(({ ending }) => ending === null);
  }

  /** @throws ToolRefusal */
  find(id: string): StartedCommand {
    const found = this.#commands.get(id);
    if (found === undefined)
      throw new ToolRefusal("UNKNOWN_COMMAND", `There is no command ${id}, or it ended long ago.`);
    return found;
  }

  /** @throws ToolRefusal TOO_MANY_COMMANDS, EngineTrouble */
  async start(request: CommandStart, start: StartExec, trouble: (detail: string) => void): Promise<StartedCommand> {
    const running = this.all.filter(({ ending }) => ending === null).length;
    if (running + this.#starting >= MAX_STARTED)
      throw new ToolRefusal("TOO_MANY_COMMANDS", `A session runs at most ${MAX_STARTED} started commands at once.`);
    this.#starting += 1;
    try {
      const isBounded = !request.isBackground && request.tty === undefined;
      const output = new KeptOutput({ waits: !request.isBackground });
      let command: StartedCommand | null = null;
      let maxBytes = Number.POSITIVE_INFINITY;
      const onOutput: OnOutput = (stream, chunk) => {
        if (output.end + chunk.length <= maxBytes) return output.add(stream, chunk);
        command?.stop("output_limit");
        return undefined;
      };
      const { exec, timeoutMs, maxOutputBytes } = await start(onOutput);
      if (isBounded) maxBytes = maxOutputBytes;
      const bound = isBounded ? timeoutMs : (request.timeoutMs ?? null);
      command = new StartedCommand(
        request,
        { output, exec, startedAt: new Date().toISOString(), timeoutMs: bound },
        trouble,
      );
      this.#commands.set(command.id, command);
      this.#forgetOld();
      return command;
    } finally {
      this.#starting -= 1;
    }
  }

  /** Ends all, and waits for that. */
  async end(): Promise<void> {
    for (const command of this.all) command.stop("cancelled");
    await Promise.all(this.all.map(({ ended }) => ended));
  }

  #forgetOld(): void {
    const ended = this.all.filter(({ ending }) => ending !== null);
    for (const { id } of ended.slice(0, Math.max(0, ended.length - MAX_ENDED))) this.#commands.delete(id);
  }
}
