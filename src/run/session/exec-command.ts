import { join, posix } from "node:path";
import type { ExecExit, SessionCell } from "../../isolation/exec.ts";
import { OUTPUT_PATH } from "../../isolation/plan.ts";
import { type Ending, endingOf, type StopReason } from "../result.ts";
import { CapturedOutput, type CapturedText } from "./captured-output.ts";

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
  readonly onOutput: (stream: "stdout" | "stderr", chunk: Buffer) => void;
}

export interface CommandResult extends Ending {
  readonly stdout: CapturedText;
  readonly stderr: CapturedText;
  /** False: the cell went with the command, or could not be cleaned after it; the next command gets a new one. */
  readonly cellUsable: boolean;
}

/** A cell, and how many of its processes are known to have been killed for memory. */
export interface HeldCell {
  readonly cell: SessionCell;
  oomKills: number;
}

/** How long a command that was asked to end may take before everything in the cell is ended. */
const GRACE_MS = 250;

/**
 * Runs one command in a session's cell. At its limit, everything that any command started there is ended, wherever it
 * hides: the kernel signals all processes of the worker's user at once (design fact 11: the engine itself cannot).
 */
export async function execCommand(
  held: HeldCell,
  command: CheckedCommand,
  outputDir: string,
  signal: AbortSignal,
): Promise<CommandResult> {
  const captured = (name: "stdout" | "stderr"): CapturedOutput =>
    new CapturedOutput(join(outputDir, `${command.id}.${name}`), posix.join(OUTPUT_PATH, `${command.id}.${name}`));
  const streams = { stdout: captured("stdout"), stderr: captured("stderr") };
  const { cell } = held;
  const stopper = new Stopper(cell);

  const exec = await cell.exec({
    argv: command.argv,
    cwd: command.cwd,
    env: command.env,
    stdin: command.stdin,
    onOutput(name, chunk) {
      const room = command.maxOutputBytes - streams.stdout.bytes - streams.stderr.bytes;
      const kept = chunk.subarray(0, Math.max(0, room));
      if (kept.length > 0) {
        streams[name].add(kept);
        command.onOutput(name, kept);
      }
      if (kept.length < chunk.length) stopper.stop("output_limit");
    },
  });
  const timer = setTimeout(() => stopper.stop("timed_out"), command.timeoutMs);
  const onCancel = (): void => stopper.stop("cancelled");
  signal.addEventListener("abort", onCancel);
  if (signal.aborted) onCancel();
  const exit = await Promise.race([exec.exit, stopper.gaveUp]);
  clearTimeout(timer);
  signal.removeEventListener("abort", onCancel);
  const clean = await stopper.cleaned();

  const [stdout, stderr] = await Promise.all([streams.stdout.end(), streams.stderr.end()]);
  const texts = { stdout, stderr, cellUsable: clean && exit !== null && exit.kind === "exited" && exit.cellAlive };
  if (exit === null) return { status: stopper.reason ?? "lost", exitCode: null, signal: null, ...texts };
  const outOfMemory = exit.kind === "exited" && exit.code === 137 && (await killedForMemory(held, exit));
  const usage = { cpuMs: null, memoryBytesPeak: null };
  const ending = endingOf(
    exit.kind === "exited" ? { kind: "exited", code: exit.code, outOfMemory, usage } : exit,
    stopper.reason,
  );
  return { ...ending, ...texts };
}

/** A cell that is gone with a 137 that nobody sent was killed for memory as a whole. */
async function killedForMemory(held: HeldCell, exit: ExecExit & { kind: "exited" }): Promise<boolean> {
  if (!exit.cellAlive) return true;
  const before = held.oomKills;
  held.oomKills = (await held.cell.oomKills()) ?? before;
  return held.oomKills > before;
}

/** Ends whatever commands have left in a cell, once, and remembers why. */
class Stopper {
  readonly #cell: SessionCell;
  /** Settles where the command's own end may never be told. */
  readonly gaveUp: Promise<null>;
  readonly #giveUp: (exit: null) => void;
  #reason: StopReason | null = null;
  #ending: Promise<boolean> = Promise.resolve(true);

  constructor(cell: SessionCell) {
    this.#cell = cell;
    const { promise, resolve } = Promise.withResolvers<null>();
    this.gaveUp = promise;
    this.#giveUp = resolve;
  }

  get reason(): StopReason | null {
    return this.#reason;
  }

  stop(reason: StopReason): void {
    if (this.#reason !== null) return;
    this.#reason = reason;
    this.#ending = this.#end(reason);
  }

  /** Settles when nothing that was stopped is left: true where that is certain. */
  async cleaned(): Promise<boolean> {
    return await this.#ending;
  }

  async #end(reason: StopReason): Promise<boolean> {
    if (reason !== "output_limit") {
      await this.#cell.signalAll("SIGTERM");
      await new Promise((resolve) => setTimeout(resolve, GRACE_MS));
    }
    const gone = await this.#cell.signalAll("SIGKILL");
    // Where not all could be ended the cell is taken down, and the command's own end with it.
    if (!gone) this.#giveUp(null);
    return gone;
  }
}
