import type { Socket } from "node:net";
import type { Readable } from "node:stream";
import type { NetworkPlace } from "../../sandbox/network/rule.ts";
import type { Enforcement } from "../plan/plan.ts";

/** A running isolated environment. Disposing removes every trace of it, in any state. */
export interface Cell extends AsyncDisposable {
  readonly id: string;
  readonly enforcement: Enforcement;
  /**
   * Starts the worker, with `input` and then all of `rest` as its whole standard input. Once. `rest` is read as fast as the worker reads, and
   * stays its caller's: it may have more when the worker has ended, and an error of it is its caller's to see, and the end of the input.
   */
  release(input: Uint8Array, rest?: Readable): void;
  /** Resolves when the cell has ended and all of its output was delivered. Never rejects. */
  readonly exit: Promise<CellExit>;
  /**
   * Listens in the cell's own network namespace, with sockets that belong to this process: nothing of it runs in the cell.
   * When it resolves, every place takes connections, each of which goes to `accept`. They may send before they end,
   * and receive after that. Rejects with `EngineTrouble`.
   */
  listen(places: readonly NetworkPlace[], accept: Accept): Promise<Listening>;
  /** Bytes of deleted files that its processes still hold open; null if that cannot be measured. */
  unnamedBytes(): Promise<number | null>;
  /** `SIGTERM` asks the worker to end, `SIGKILL` ends every process of the cell. No error if it has ended already. */
  kill(signal: "SIGTERM" | "SIGKILL"): Promise<void>;
}

/** Takes over a connection that a program of a cell makes to a place. Never throws. */
export type Accept = (place: NetworkPlace, socket: Socket) => void;

export type Listening =
  /** Disposing closes the places, but no connection. */
  | (AsyncDisposable & { readonly ok: true })
  /** Nothing listens. `reason`: in words for people, e.g. that a program of the cell has taken one of the addresses. */
  | { readonly ok: false; readonly reason: string };

/** Exit code of a program that a SIGKILL ended: from Corral, another program, or the kernel for memory. */
export const KILLED = 137;

export type CellExit =
  | {
      readonly kind: "exited";
      readonly code: number;
      /** Whether a signal ended the worker, or it ended with that code itself; absent: that is not known. */
      readonly bySignal?: boolean;
      readonly outOfMemory: boolean;
      readonly usage: CellUsage;
      /** A signal that ends programs, which not Corral but another client of the engine sent it while it ran, e.g. `docker stop`. */
      readonly sent?: NodeJS.Signals;
    }
  /** The engine did not report how the worker ended. */
  | { readonly kind: "lost"; readonly reason: string };

/** As last measured while the worker ran; null if it ended before the first measurement. */
export interface CellUsage {
  readonly cpuMs: number | null;
  readonly memoryBytesPeak: number | null;
}

/** What a cell that runs has used until now, and the memory that it holds; null: it is not known. */
export interface CellUsageNow extends CellUsage {
  readonly memoryBytes: number | null;
}

/** A cell that runs its command once for each item, and is cleaned in between. */
export interface ServingCell extends Cell {
  /** Runs the command for one item; one at a time. Its input and output are files that Corral made before. */
  serve(id: string): Promise<ServedItem>;
}

export type ServedItem =
  /** `code` is 128 + n after signal n. The cell is clean and can serve the next item. */
  | { readonly kind: "ended"; readonly code: number; readonly outOfMemory: boolean }
  /** The command ended likewise, but the cell could not be cleaned and has ended. `what` was left. */
  | { readonly kind: "dirty"; readonly code: number; readonly outOfMemory: boolean; readonly what: string }
  /** The cell ended during the item, by itself or because it was killed; its exit says how. */
  | { readonly kind: "gone" };

/** One command in a cell that waits for commands. It was checked before: the driver only translates. */
export interface ExecRequest {
  readonly argv: readonly string[];
  /** Absolute in the cell. */
  readonly cwd: string;
  /** Added to the cell's own environment. */
  readonly env: Readonly<Record<string, string>>;
  /** Its whole standard input; absent: input stays open for {@link Exec.write}. */
  readonly stdin?: Uint8Array;
  /** Runs at a terminal: both streams arrive as `stdout`. */
  readonly tty?: TerminalSize;
  /** If it returns a promise, which must not reject, no more output is read until it has settled. */
  readonly onOutput: (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>;
  /**
   * Takes the pipe of its standard output, before it begins, if {@link SessionCell.hasPipes}: then `onOutput` gets none of that. It is closed when this
   * returns; a process that was started with it has its own.
   */
  readonly takesOutput?: (pipe: PipeEnd) => void;
}

/** This process's end of a pipe of a command, for the `stdio` of a process that it starts. */
export type PipeEnd = Socket | number;

/** How a process that moves a content between a pipe and a client ended. `closed`: what it writes to takes no more. */
export type CarriedEnd = "whole" | "cut" | "closed";

/** A content that another process writes into a pipe. */
export interface CarriedContent {
  readonly bytes: number;
  into(pipe: PipeEnd): Promise<CarriedEnd>;
}

/** The content of a file for another process, which reads a pipe. */
export interface CarriableContent {
  readonly bytes: number;
  /** `carry` has the pipe while it is called. Rejects with `EngineTrouble`. */
  through(carry: (pipe: PipeEnd) => Promise<CarriedEnd>): Promise<void>;
}

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

export interface Exec {
  /** Resolves when the command has ended and its output was delivered. Never rejects. */
  readonly exit: Promise<ExecExit>;
  /** A promise while the command is behind with reading. Never rejects. */
  write(chunk: Uint8Array): Promise<void> | undefined;
  /** The pipe of its standard input, for who writes to that instead. */
  readonly input?: PipeEnd;
  closeInput(): void;
  resize(size: TerminalSize): Promise<void>;
  /**
   * Signals the command and all that it has started, wherever that hides, and nothing of other commands. False if some of it may be left
   * after a SIGKILL, or if it is not known what it is.
   */
  signal(signal: NodeJS.Signals): Promise<boolean>;
}

export type ExecExit =
  /**
   * `cellAlive`: false if the whole cell ended with the command. `outOfMemory`: a SIGKILL ended the command, and the
   * kernel killed a process of the cell for memory while it ran.
   */
  | { readonly kind: "exited"; readonly code: number; readonly cellAlive: boolean; readonly outOfMemory: boolean }
  | { readonly kind: "lost"; readonly reason: string };

/** A cell that runs commands until it is disposed or its orchestrator ends. */
export interface SessionCell extends Cell {
  /** The streams of its commands are pipes of this machine. */
  readonly hasPipes?: true;
  /** Rejects with `EngineTrouble` if the command could not be started. */
  exec(request: ExecRequest): Promise<Exec>;
  /**
   * Signals every process that commands have left in the cell. What is stopped cannot continue by itself. False if some may be left: then the cell must be removed.
   * A cell in which that takes too long is killed.
   */
  signalAll(signal: "SIGTERM" | "SIGKILL" | "SIGSTOP" | "SIGCONT"): Promise<boolean>;
}
