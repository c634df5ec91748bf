import { isCancel, select } from "@clack/prompts";
import type { Answer, Ask, Decision, Question } from "../../approval/approver.ts";
import type { Amount } from "../../operations/foreseen-changes.ts";
import { type Choice, choiceTexts, questionText } from "../../operations/wording/question-text.ts";
import { counted, roughBytesText } from "../../text/amounts.ts";
import { visibleName } from "../../text/visible.ts";
import { colorsFor, type Pausable, type Terminal } from "../terminal/terminal.ts";

const DEFAULT_COLUMNS = 80;

type PromptTerminal = Pick<Terminal, "stdin" | "stderr" | "env">;

/** Asks at the terminal, on standard error. While it does, nothing else draws there. */
export function promptAt(terminal: PromptTerminal, screen: Pausable): Ask {
  return async (question, signal): Promise<Answer | Decision> => {
    const { stderr, env } = terminal;
    const text = questionText(question, stderr.columns || DEFAULT_COLUMNS, colorsFor(stderr, env));
    const streams = { input: terminal.stdin, output: stderr, signal };
    const pick = (restLines: number, { message } = text, about: Question = question) =>
      select<Choice>({ message, options: choiceTexts(about, restLines), initialValue: "no", ...streams });
    screen.pause?.();
    try {
      writeLines(stderr, text.above);
      let answer = await pick(text.rest.length);
      if (answer === "all") {
        writeLines(stderr, text.rest);
        answer = await pick(0);
      }
      let directory: string | undefined;
      if (answer === "wider") {
        const around = await select<string>({
          message: "Which directory?",
          options: directories(question),
          ...streams,
        });
        if (isCancel(around)) return "interrupt";
        directory = around;
        // The question again, for what would be granted now.
        const { wider: _, ...chosen } = { ...question, directory, paths: [directory] };
        const about = questionText(chosen, stderr.columns || DEFAULT_COLUMNS, colorsFor(stderr, env));
        writeLines(stderr, [...about.above, ...about.rest]);
        answer = await pick(0, about, chosen);
      }
      signal.throwIfAborted();
      // While a prompt is open the terminal is raw, and Ctrl-C is a key like any other.
      if (isCancel(answer) || answer === "all" || answer === "wider") return "interrupt";
      if (directory === undefined || answer === "no") return answer;
      return { outcome: "approved", scope: answer, reason: "the user approved a directory around it", directory };
    } finally {
      screen.resume?.();
    }
  };
}

function directories({ directory = "", wider = [] }: Question) {
  return [directory, ...wider].map((path) => ({ value: path, label: visibleName(path) }));
}

function writeLines(stderr: Terminal["stderr"], lines: readonly string[]): void {
  if (lines.length > 0) stderr.write(`${lines.join("\n")}\n`);
}

/** `2 files, +12 -3 lines, 4.1 KiB`. */
export function amountText({ files, added, removed, bytes }: Amount): string {
  return `${counted(files, "file")}, +${added} -${removed} lines, ${roughBytesText(bytes)}`;
}
