import { hintsFor } from "../../tools/exec-hints/hints.ts";
import type { ExecFacts } from "../../tools/exec-hints/wording.ts";
import type { ExecToolAnswer } from "../../tools/hands.ts";
import type { CommandResult } from "./exec-command.ts";

/** What the tool answers for a command that has ended, with what its author should know of the sandbox. */
export function answerOf(
  result: CommandResult,
  facts: ExecFacts,
  { cellReplaced, durationMs }: Pick<ExecToolAnswer, "cellReplaced" | "durationMs">,
): ExecToolAnswer {
  const { status, exitCode, signal } = result;
  const [stdout, stderr] = [result.stdout.text, result.stderr.text];
  return {
    status,
    exitCode,
    signal,
    stdout,
    stderr,
    cut: result.stdout.cut || result.stderr.cut,
    hints: hintsFor({ stdout, stderr, exitCode, signal, status }, facts),
    cellReplaced,
    durationMs,
  };
}

/** For a command that did not begin. */
export function unstartedAnswer(status: "cancelled" | "lost", cellReplaced: boolean): ExecToolAnswer {
  const nothing = { exitCode: null, signal: null, stdout: "", stderr: "", cut: false, hints: [], durationMs: 0 };
  return { status, ...nothing, cellReplaced };
}
