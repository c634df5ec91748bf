import type { ExecToolAnswer, ExecToolRequest } from "../../tools/hands.ts";
import type { OnOutput } from "./exec-command.ts";

/** Runs the commands of a session, each after the one before. */
export interface Commands {
  exec(request: ExecToolRequest, signal: AbortSignal, onOutput: OnOutput): Promise<ExecToolAnswer>;
  /** True if there is a cell that the next command will not have. */
  readonly isStale: boolean;
  /** The next command gets a new cell, since what it may see has changed. True if there is one to replace. */
  replaceBeforeNext(): boolean;
  /** Ends the cell with everything in it, because it shows what the worker may no longer see. */
  endNow(): void;
}
