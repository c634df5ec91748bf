import { createWriteStream, type WriteStream } from "node:fs";
import { join, posix } from "node:path";
import { finished } from "node:stream/promises";
import { OUTPUT_PATH } from "../../isolation/plan/plan.ts";
import type { Exec, ExecExit, ExecRequest, SessionCell } from "../../isolation/port/cell.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import { onAbort } from "../../platform/within.ts";
import type { ExecToolAnswer, ExecToolRequest } from "../../tools/hands.ts";
import { type Ending, endingOf, type StopReason } from "../model/result.ts";
import type { CommandStart, StartedCommand } from "./started-commands.ts";
import type { OutputDir } from "./write-room.ts";

/** How much of a stream's beginning and end an answer holds; the file has all of it. */
const HEAD_BYTES = 12_000;
const TAIL_BYTES = 12_000;

export interface CapturedText {
  /** UTF-8; if something is left out, a line says how much, and which file has all of it. */
  readonly text: string;
  readonly bytes: number;
  readonly cut: boolean;
  /** How much of it is in the file. */
  readonly fileBytes: number;
}

/**
 * One output stream of a command: its beginning and its end in memory, and all of it in a file once it is longer than
 * its beginning, so that a command that prints gigabytes costs memory for neither the worker nor Corral.
 */
export class CapturedOutput {
  readonly #host: string;
  readonly #shownAs: string;
  readonly #tail = new LastBytes(TAIL_BYTES);
  #file: WriteStream | null = null;
  #fileError: Error | null = null;
  #behind: Promise<void> | null = null;
  #head = Buffer.alloc(0);
  #bytes = 0;

  /** `host`: the file for the whole of a long stream; `shownAs`: the path by which the worker reads it. */
  constructor(host: string, shownAs: string) {
    this.#host = host;
    this.#shownAs = shownAs;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** A promise while the disk is behind: until it settles, what is added waits in memory. Never rejects. */
  add(chunk: Buffer): Promise<void> | undefined {
    this.#bytes += chunk.length;
    const toHead = chunk.subarray(0, HEAD_BYTES - this.#head.length);
    if (toHead.length > 0) this.#head = Buffer.concat([this.#head, toHead]);
    const beyond = chunk.subarray(toHead.length);
    if (beyond.length === 0) return undefined;
    this.#tail.add(beyond);
    this.#file ??= this.#opened();
    if (this.#fileError === null && !this.#file.write(beyond)) this.#behind ??= this.#caughtUp(this.#file);
    return this.#behind ?? undefined;
  }

  /** Closes the file, and returns what a caller sees. */
  async end(): Promise<CapturedText> {
    const bytes = this.#bytes;
    if (this.#file === null) return { text: this.#head.toString("utf8"), bytes, cut: false, fileBytes: 0 };
    this.#file.end();
    await finished(this.#file).catch((error: Error) => {
      this.#fileError ??= error;
    });
    const fileBytes = this.#file.bytesWritten;
    const tail = this.#tail.bytes();
    const left = bytes - this.#head.length - tail.length;
    if (left <= 0) return { text: Buffer.concat([this.#head, tail]).toString("utf8"), bytes, cut: false, fileBytes };
    const where = this.#fileError === null ? `the whole output is in ${this.#shownAs}` : "the rest could not be kept";
    const mark = `\n[… ${left} bytes left out; ${where} …]\n`;
    return {
      text: wholeCharacters(this.#head, "end") + mark + wholeCharacters(tail, "start"),
      bytes,
      cut: true,
      fileBytes,
    };
  }

  #opened(): WriteStream {
    const file = createWriteStream(this.#host, { flags: "wx", mode: 0o644 });
    file.on("error", (error) => {
      this.#fileError = error;
    });
    file.write(this.#head);
    return file;
  }

  /** A file that fails closes, and does not block the command. */
  #caughtUp(file: WriteStream): Promise<void> {
    return new Promise((resolve) => {
      const caughtUp = (): void => {
        file.off("drain", caughtUp).off("close", caughtUp);
        this.#behind = null;
        resolve();
      };
      file.on("drain", caughtUp).on("close", caughtUp);
    });
  }
}

/** The end of a stream, compacted from time to time: otherwise a program that prints single bytes would cost thousands for each. */
class LastBytes {
  readonly #size: number;
  readonly #buffer: Buffer;
  #length = 0;

  constructor(size: number) {
    this.#size = size;
    this.#buffer = Buffer.alloc(2 * size);
  }

  add(chunk: Buffer): void {
    const last = chunk.subarray(-this.#size);
    if (this.#length + last.length > this.#buffer.length) {
      this.#buffer.copyWithin(0, this.#length - this.#size, this.#length);
      this.#length = this.#size;
    }
    this.#length += last.copy(this.#buffer, this.#length);
  }

  bytes(): Buffer {
    return this.#buffer.subarray(Math.max(0, this.#length - this.#size), this.#length);
  }
}

/** Removes a half character at the side where the text was cut. */
function wholeCharacters(bytes: Buffer, side: "start" | "end"): string {
  if (side === "end") return new TextDecoder("utf-8").decode(bytes, { stream: true });
  let at = 0;
  while (at < 3 && at < bytes.length && ((bytes[at] ?? 0) & 0xc0) === 0x80) at += 1;
  return bytes.subarray(at).toString("utf8");
}

/** A command that was checked: paths are the cell's, names are valid, the limit is within the sandbox's. */
export interface CheckedCommand {
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: Uint8Array;
  readonly timeoutMs: number;
  /** Both streams together; more ends the command. */
  readonly maxOutputBytes: number;
  /** Names the files that take long output. */
  readonly id: string;
  /** Each piece of output as it comes, within the limit. */
  readonly onOutput: OnOutput;
}

/** A promise holds the command back until it has settled; it must not reject. */
export type OnOutput = ExecRequest["onOutput"];

export interface CommandResult extends Ending {
  readonly stdout: CapturedText;
  readonly stderr: CapturedText;
  /** False: the cell went with the command, or could not be cleaned after it; the next command gets a new one. */
  readonly cellUsable: boolean;
  /** Why it is not known how the command ended, for people: host paths may be in it. */
  readonly trouble: string | null;
}

/** How long a command that was asked to end may take before everything in the cell is ended. */
const GRACE_MS = 250;
/** How long a command may take to begin, which is not part of its own time. */
const START_MS = 5000;
/** How long the end of a command may take to be reported after everything in its cell was ended. */
const SILENCE_MS = 10_000;

/**
 * Runs one command in a session's cell. At its limit, everything that it started is ended, wherever it hides. If that fails, or the command
 * has not begun, everything in the cell is: the kernel signals all processes of the worker's user at once (docs/facts.md, fact: no-exec-kill).
 */
export async function execCommand(
  cell: SessionCell,
  command: CheckedCommand,
  output: OutputDir,
  { signal, overDisk }: { readonly signal: AbortSignal; readonly overDisk: AbortSignal },
): Promise<CommandResult> {
  const streams = { stdout: captured(output, command.id, "stdout"), stderr: captured(output, command.id, "stderr") };
  const stopper = new Stopper(cell);
  const { argv, cwd, env, stdin } = command;
  const onOutput = boundedBy(command, streams, () => stopper.stop("output_limit"));
  const starting = cell.exec({ argv, cwd, env, stdin, onOutput });
  stopper.of(starting);
  const exit = await ended(starting, stopper, command.timeoutMs, { signal, overDisk });
  const clean = await stopper.cleaned();
  const [stdout, stderr] = [await streams.stdout.end(), await streams.stderr.end()];
  await output.keep(`${command.id}.stdout`, stdout.fileBytes);
  await output.keep(`${command.id}.stderr`, stderr.fileBytes);
  const cellUsable = clean && exit?.kind === "exited" && exit.cellAlive;
  const trouble = exit?.kind === "lost" ? exit.reason : null;
  return { ...endedAs(exit, stopper.reason), stdout, stderr, cellUsable, trouble };
}

function captured({ path }: OutputDir, id: string, stream: "stdout" | "stderr"): CapturedOutput {
  return new CapturedOutput(join(path, `${id}.${stream}`), posix.join(OUTPUT_PATH, `${id}.${stream}`));
}

/** Passes on what is within the limit; the rest is dropped until the command has ended. */
function boundedBy(
  { maxOutputBytes, onOutput }: CheckedCommand,
  streams: Readonly<Record<"stdout" | "stderr", CapturedOutput>>,
  onOverflow: () => void,
): OnOutput {
  return (name, chunk) => {
    const room = maxOutputBytes - streams.stdout.bytes - streams.stderr.bytes;
    const kept = chunk.subarray(0, Math.max(0, room));
    if (kept.length < chunk.length) onOverflow();
    if (kept.length === 0) return undefined;
    const waits = [streams[name].add(kept), onOutput(name, kept)].filter((wait) => wait !== undefined);
    return waits.length === 0 ? undefined : Promise.all(waits).then(() => {});
  };
}

/** Waits for a command's end, and ends it if it exceeds a bound; null if its own end may never be reported. */
async function ended(
  starting: Promise<Exec>,
  stopper: Stopper,
  timeoutMs: number,
  { signal, overDisk }: { readonly signal: AbortSignal; readonly overDisk: AbortSignal },
): Promise<ExecExit | null> {
  const stopAfter = (ms: number): NodeJS.Timeout => setTimeout(() => stopper.stop("timed_out"), ms);
  // What an earlier command left in the cell can stop this one before it has begun.
  let timer = stopAfter(START_MS + timeoutMs);
  const started = (exec: Exec): Promise<ExecExit> => {
    clearTimeout(timer);
    if (stopper.reason === null) timer = stopAfter(timeoutMs);
    return exec.exit;
  };
  using _cancel = onAbort(signal, () => stopper.stop("cancelled"));
  using _disk = onAbort(overDisk, () => stopper.stop("disk_limit"));
  try {
    return await Promise.race([starting.then(started, notStarted), stopper.gaveUp]);
  } finally {
    clearTimeout(timer);
  }
}

/** Whether the engine started it before it failed is not known. */
function notStarted(error: unknown): ExecExit {
  if (!(error instanceof EngineTrouble)) throw error;
  return { kind: "lost", reason: error.message };
}

function endedAs(exit: ExecExit | null, stopped: StopReason | null): Ending {
  // If Corral ended the command, that is its status, even if the cell had to go with it.
  if (exit === null || (exit.kind === "lost" && stopped !== null))
    return { status: stopped ?? "lost", exitCode: null, signal: null };
  if (exit.kind === "lost") return endingOf(exit, null);
  const { code, outOfMemory } = exit;
  const usage = { cpuMs: null, memoryBytesPeak: null };
  return endingOf({ kind: "exited", code, outOfMemory, usage }, stopped);
}

/** Ends a command with all that it has started, once, and remembers why. */
class Stopper {
  readonly #cell: SessionCell;
  readonly #over = Promise.withResolvers<null>();
  /** Settles if the command's own end may never be reported. */
  readonly gaveUp = this.#over.promise;
  /** Null if nothing was stopped. */
  reason: StopReason | null = null;
  #exec: Exec | null = null;
  #silence: NodeJS.Timeout | undefined;
  #ending: Promise<boolean> = Promise.resolve(true);

  constructor(cell: SessionCell) {
    this.#cell = cell;
  }

  of(starting: Promise<Exec>): void {
    starting.then(
      (exec) => {
        this.#exec = exec;
      },
      () => {},
    );
  }

  stop(reason: StopReason): void {
    if (this.reason !== null) return;
    this.reason = reason;
    this.#ending = this.#end(reason);
  }

  /** Settles when nothing that was stopped is left: true if that is certain. */
  async cleaned(): Promise<boolean> {
    try {
      return await this.#ending;
    } finally {
      clearTimeout(this.#silence);
    }
  }

  async #end(reason: StopReason): Promise<boolean> {
    const exec = this.#exec;
    if (reason !== "output_limit" && reason !== "disk_limit") {
      const isAsked = await (exec === null ? this.#cell.signalAll("SIGTERM") : exec.signal("SIGTERM"));
      if (isAsked) await new Promise((resolve) => setTimeout(resolve, GRACE_MS));
    }
    const gone = (await exec?.signal("SIGKILL")) || (await this.#cell.signalAll("SIGKILL"));
    // If not all could be ended, the cell is removed, and the command's own end is not reported.
    if (!gone) this.#over.resolve(null);
    else this.#silence = setTimeout(() => this.#over.resolve(null), SILENCE_MS);
    return gone;
  }
}

/** Runs the commands of a session. */
export interface Commands {
  exec(request: ExecToolRequest, signal: AbortSignal, onOutput: OnOutput): Promise<ExecToolAnswer>;
  start(request: CommandStart, signal: AbortSignal): Promise<StartedCommand>;
  /** True if there is a cell that the next command will not have. */
  readonly isStale: boolean;
  /** The next command gets a new cell, since what it may see has changed. True if there is one to replace. */
  replaceBeforeNext(): boolean;
  /** Ends the cell with everything in it, because it shows what the worker may no longer see. */
  endNow(): void;
}
