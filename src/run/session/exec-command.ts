import { join, posix } from "node:path";
import { OUTPUT_PATH } from "../../isolation/plan/plan.ts";
import { EngineTrouble } from "../../isolation/port/driver.ts";
import type { Exec, ExecExit, ExecRequest, SessionCell } from "../../isolation/port/exec.ts";
import { onAbort } from "../../platform/on-abort.ts";
import { type Ending, endingOf, type StopReason } from "../model/result.ts";
import { CapturedOutput, type CapturedText } from "./captured-output.ts";
import type { OutputDir } from "./output-dir.ts";

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
 * Runs one command in a session's cell. At its limit, everything that any command started there is ended, wherever it
 * hides: the kernel signals all processes of the worker's user at once (docs/architecture.md, fact: no-exec-kill).
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

/** Ends whatever commands have left in a cell, once, and remembers why. */
class Stopper {
  readonly #cell: SessionCell;
  readonly #over = Promise.withResolvers<null>();
  /** Settles if the command's own end may never be reported. */
  readonly gaveUp = this.#over.promise;
  /** Null if nothing was stopped. */
  reason: StopReason | null = null;
  #silence: NodeJS.Timeout | undefined;
  #ending: Promise<boolean> = Promise.resolve(true);

  constructor(cell: SessionCell) {
    this.#cell = cell;
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
    if (reason !== "output_limit" && reason !== "disk_limit") {
      const isAsked = await this.#cell.signalAll("SIGTERM");
      if (isAsked) await new Promise((resolve) => setTimeout(resolve, GRACE_MS));
    }
    const gone = await this.#cell.signalAll("SIGKILL");
    // If not all could be ended, the cell is removed, and the command's own end is not reported.
    if (!gone) this.#over.resolve(null);
    else this.#silence = setTimeout(() => this.#over.resolve(null), SILENCE_MS);
    return gone;
  }
}
