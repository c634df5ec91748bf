import { userInfo } from "node:os";
import { relative, resolve } from "node:path";
import type { Answer, Approver, Ask, Decision, Question } from "../../approval/approver.ts";
import { QueuedApprover } from "../../approval/queued-approver.ts";
import type { Project } from "../../declarations/project.ts";
import type { Amount } from "../../operations/foreseen-changes.ts";
import { type Choice, choiceTexts, questionText, shortQuestion } from "../../operations/wording/question-text.ts";
import type { GrantRecord } from "../../run/model/grantee.ts";
import { counted, roughBytesText } from "../../text/amounts.ts";
import { printable, printableLine, visibleName } from "../../text/visible.ts";
import { colorsFor, type Pausable, type Stop, say, type Terminal } from "../terminal/terminal.ts";

interface Surroundings {
  readonly terminal: Terminal;
  /** What draws on standard error, and keeps still while a question is open. */
  readonly screen?: Pausable;
  readonly stop: Stop;
}

/** A person can be asked only if they can both read the question and type the answer. */
export function personAt(project: Project, { terminal, screen = {}, stop }: Surroundings): Approver | null {
  if (!terminal.stderr.isTTY || !terminal.stdin.isTTY) return null;
  return new QueuedApprover({
    ask: promptAt(terminal, screen),
    timeoutMs: project.approval.timeoutMs,
    onInterrupt: () => stop.cancel(),
    at: "terminal",
    by: userName(),
    onDecidedElsewhere: ({ outcome, reason, scope }) => {
      const forHowLong = outcome === "approved" && scope === "tree" ? ", for this tree of runs" : "";
      say(terminal, `corral: Decided elsewhere: ${printableLine(reason, 200)}${forHowLong}`);
    },
  });
}

/** Puts a question into the inbox if no user can answer here, and prints its id. */
export function waitingBy({ askElsewhere = false }: ElsewhereOptions, tell: (line: string) => void) {
  return {
    asksElsewhere: askElsewhere,
    onWaiting(id: string, question: Question): void {
      const what = printableLine(`Worker ${question.worker} asks to ${shortQuestion(question)}`, 200);
      tell(`corral: ${what}. Answer with: corral approvals decide ${id}`);
    },
  };
}

export interface ElsewhereOptions {
  readonly askElsewhere?: boolean;
}

/** Tells the configuration that would have made the questions unnecessary; loaded only where something was granted. */
export async function tellSuggestion(
  project: Project,
  shownDir: string,
  grants: readonly GrantRecord[],
  terminal: Terminal,
): Promise<void> {
  if (grants.length === 0) return;
  const text = await suggestionText(project, shownDir, grants);
  if (text !== null) say(terminal, text);
}

/**
 * What was granted, and the changes to the project's files that would have made the questions unnecessary; null where
 * nothing was granted. `shownDir`: the project as the person named it.
 */
async function suggestionText(project: Project, shownDir: string, all: readonly GrantRecord[]): Promise<string | null> {
  // What a worker declares needs no other declaration: to ask is what the project wants.
  const grants = all.filter((grant) => !("declared" in grant));
  if (grants.length === 0) return null;
  const { readDeclarationFile } = await import("../../declarations/yaml/document.ts");
  const { suggestedConfiguration } = await import("../../run/grants/suggestion/suggestion.ts");
  const workers = new Map<string, { file: string; text: string }>();
  for (const name of new Set(grants.flatMap(({ granted }) => granted))) {
    const worker = project.workers.get(name);
    if (worker === undefined) continue;
    const file = relative(resolve(shownDir), resolve(worker.file));
    workers.set(name, { file, text: await readDeclarationFile(worker.file, worker.file) });
  }
  const text = project.file === null ? null : await readDeclarationFile(project.file, project.file);
  const { files, notes } = suggestedConfiguration({
    project: { dir: project.dir, file: "corral.yaml", text },
    mounts: project.declaration.mounts,
    workers,
    grants,
  });
  const had = grants.map((grant) => {
    const what = "to" in grant ? `reach ${grant.to}` : `${grant.mode} ${printableLine(grant.directory, 1000)}`;
    return `  ${printableLine(grant.worker, 80)}: ${what} (${grant.scope})`;
  });
  const head = ["corral: granted during the run:", ...new Set(had)];
  const advice = files.length === 0 ? [] : ["With these changes in the project's folder, Corral does not ask again:"];
  const patches = files.map(({ patch }) => printable(patch).trimEnd());
  return [...head, ...notes.map((note) => `  ${printableLine(note, 1000)}`), ...advice, ...patches].join("\n");
}

/** The name of the user of this process, for people; its number, if the machine does not know a name. */
export function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return `user ${process.geteuid?.() ?? "unknown"}`;
  }
}

const DEFAULT_COLUMNS = 80;

type PromptTerminal = Pick<Terminal, "stdin" | "stderr" | "env">;

/** Asks at the terminal, on standard error. While it does, nothing else draws there. */
export function promptAt(terminal: PromptTerminal, screen: Pausable): Ask {
  return async (question, signal): Promise<Answer | Decision> => {
    // Few runs ask, and this package takes long to load.
    const { isCancel, select } = await import("@clack/prompts");
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
