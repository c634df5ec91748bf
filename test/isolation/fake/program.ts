import type { CellExit } from "../../../src/isolation/port/cell.ts";

/** A worker in memory: what it would do as a process, as a function of what a process has. */
export type FakeProgram = (process: FakeProcess) => FakeEnd | Promise<FakeEnd>;

/** Its exit code (128+n for a death by signal n, as the Engine tells it), or the whole of what the engine tells. */
export type FakeEnd = number | CellExit;

export interface FakeProcess {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The whole of its input. */
  readonly stdin: Buffer;
  readonly stdout: FakeStream;
  readonly stderr: FakeStream;
  /** Aborted by SIGTERM. A program that rejects then has died of it; one that takes no notice ignores it. */
  readonly signal: AbortSignal;
}

export interface FakeStream {
  write(data: string | Uint8Array): void;
}
