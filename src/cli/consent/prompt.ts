import { isCancel, select } from "@clack/prompts";
import type { Answer, Ask } from "../../approval/question.ts";
import { type Choice, choiceTexts, questionText } from "../../operations/wording/question-text.ts";
import type { Pausable } from "../terminal/screen.ts";
import { colorsFor, type Terminal } from "../terminal/terminal.ts";

const DEFAULT_COLUMNS = 80;

type PromptTerminal = Pick<Terminal, "stdin" | "stderr" | "env">;

/** Asks at the terminal, on standard error. While it does, nothing else draws there. */
export function promptAt(terminal: PromptTerminal, screen: Pausable): Ask {
  return async (question, signal): Promise<Answer> => {
    const { stderr, env } = terminal;
    const text = questionText(question, stderr.columns || DEFAULT_COLUMNS, colorsFor(stderr, env));
    const pick = (restLines: number) =>
      select<Choice>({
        message: text.message,
        options: choiceTexts(question, restLines),
        initialValue: "no",
        input: terminal.stdin,
        output: stderr,
        signal,
      });
    screen.pause?.();
    try {
      writeLines(stderr, text.above);
      let answer = await pick(text.rest.length);
      if (answer === "all") {
        writeLines(stderr, text.rest);
        answer = await pick(0);
      }
      signal.throwIfAborted();
      // While a prompt is open the terminal is raw, and Ctrl-C is a key like any other.
      return isCancel(answer) || answer === "all" ? "interrupt" : answer;
    } finally {
      screen.resume?.();
    }
  };
}

function writeLines(stderr: Terminal["stderr"], lines: readonly string[]): void {
  if (lines.length > 0) stderr.write(`${lines.join("\n")}\n`);
}
