import { isCancel, select } from "@clack/prompts";
import type { Ask, Question } from "./asked-approver.ts";
import { printable, printableLine } from "./printable.ts";
import type { Terminal } from "./terminal.ts";

/** Asks at the terminal, on standard error. While it does, nothing else draws there. */
export function promptAt(terminal: Terminal, screen: { pause(): void; resume(): void }): Ask {
  return async (question, signal) => {
    screen.pause();
    try {
      const answer = await select<"once" | "session" | "no">({
        message: messageOf(question),
        options: [
          { value: "no", label: "No" },
          { value: "once", label: "Yes", hint: question.runs > 1 ? `for these ${question.runs} runs` : "for this run" },
          {
            value: "session",
            label: "Yes, and do not ask again",
            hint: "for exactly this, until this command ends",
          },
        ],
        initialValue: "no",
        input: terminal.stdin,
        output: terminal.stderr,
        signal,
      });
      signal.throwIfAborted();
      // While a prompt is open the terminal is raw, and Ctrl-C is a key like any other.
      return isCancel(answer) ? "interrupt" : answer;
    } finally {
      screen.resume();
    }
  };
}

export function messageOf({ worker, operations, paths, command, runs }: Question): string {
  // Whole, for nobody can agree to the part of a command that is not shown. A line break begins another command, and
  // must not look like a blank: behind a `#` all of that would seem a comment.
  const what = command === undefined ? "" : ` ${printable(command).replaceAll("\n", "⏎ ")}`;
  const where =
    paths.length === 0 ? "" : ` in ${paths.map((path) => printableLine(path, Number.POSITIVE_INFINITY)).join(", ")}`;
  const who = `Worker ${printableLine(worker, 80)}`;
  return `${who}${runs > 1 ? ` (${runs} runs of it)` : ""} asks to ${operations.join(" and ")}${what}${where}. Allow it?`;
}
