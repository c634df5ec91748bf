import type { Cell } from "./cell.ts";

/** One command in a cell that waits for commands. All of it is checked: the driver translates. */
export interface ExecRequest {
  readonly argv: readonly string[];
  /** Absolute in the cell. */
  readonly cwd: string;
  /** Besides the cell's own environment. */
  readonly env: Readonly<Record<string, string>>;
  /** The whole of its standard input; absent: open, and fed by {@link Exec.write}. */
  readonly stdin?: Uint8Array;
  /** A terminal: both streams come as one, as `stdout`. */
  readonly tty?: TerminalSize;
  /** Where it answers with a promise, which must not reject, nothing more is read of the command until that has settled. */
  readonly onOutput: (stream: "stdout" | "stderr", chunk: Buffer) => void | Promise<void>;
}

export interface TerminalSize {
  readonly columns: number;
  readonly rows: number;
}

export interface Exec {
  /** Settles once, when the command has ended and its output was delivered. Never rejects. */
  readonly exit: Promise<ExecExit>;
  write(chunk: Uint8Array): void;
  closeInput(): void;
  resize(size: TerminalSize): Promise<void>;
}

export type ExecExit =
  /**
   * `cellAlive`: false where the whole cell ended with the command. `outOfMemory`: the command died of a SIGKILL, and
   * the kernel killed a process of the cell for memory while it ran.
   */
  | { readonly kind: "exited"; readonly code: number; readonly cellAlive: boolean; readonly outOfMemory: boolean }
  | { readonly kind: "lost"; readonly reason: string };

/** A cell that runs commands one after another until it is disposed, or its orchestrator is gone. */
export interface SessionCell extends Cell {
  /** Rejects with `EngineTrouble` where the command could not be started. */
  exec(request: ExecRequest): Promise<Exec>;
  /** Signals every process that commands have left in the cell, wherever it hides. False where some may be left: then the cell must go. */
  signalAll(signal: "SIGTERM" | "SIGKILL"): Promise<boolean>;
}
