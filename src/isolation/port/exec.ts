import type { Cell } from "./cell.ts";

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
}

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

export interface Exec {
  /** Resolves when the command has ended and its output was delivered. Never rejects. */
  readonly exit: Promise<ExecExit>;
  write(chunk: Uint8Array): void;
  closeInput(): void;
  resize(size: TerminalSize): Promise<void>;
}

export type ExecExit =
  /**
   * `cellAlive`: false if the whole cell ended with the command. `outOfMemory`: a SIGKILL ended the command, and the
   * kernel killed a process of the cell for memory while it ran.
   */
  | { readonly kind: "exited"; readonly code: number; readonly cellAlive: boolean; readonly outOfMemory: boolean }
  | { readonly kind: "lost"; readonly reason: string };

/** A cell that runs commands one after another until it is disposed or its orchestrator ends. */
export interface SessionCell extends Cell {
  /** Rejects with `EngineTrouble` if the command could not be started. */
  exec(request: ExecRequest): Promise<Exec>;
  /**
   * Signals every process that commands have left in the cell. False if some may be left: then the cell must be removed.
   * A cell in which that takes too long is killed.
   */
  signalAll(signal: "SIGTERM" | "SIGKILL"): Promise<boolean>;
}
