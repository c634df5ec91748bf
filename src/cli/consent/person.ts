import { userInfo } from "node:os";
import type { Approver, Question } from "../../approval/approver.ts";
import { QueuedApprover } from "../../approval/queued-approver.ts";
import type { Project } from "../../declarations/project.ts";
import type { GrantRecord } from "../../run/model/grantee.ts";
import { printableLine } from "../../text/visible.ts";
import { type Pausable, type Stop, say, type Terminal } from "../terminal/terminal.ts";

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
    ask: async (question, signal) => await (await import("./prompt.ts")).promptAt(terminal, screen)(question, signal),
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
      void import("../../operations/wording/question-text.ts").then(({ shortQuestion }) => {
        const what = printableLine(`Worker ${question.worker} asks to ${shortQuestion(question)}`, 200);
        tell(`corral: ${what}. Answer with: corral approvals decide ${id}`);
      });
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
  const { suggestionText } = await import("./suggestion-text.ts");
  const text = await suggestionText(project, shownDir, grants);
  if (text !== null) say(terminal, text);
}

/** The name of the user of this process, for people; its number, if the machine does not know a name. */
export function userName(): string {
  try {
    return userInfo().username;
  } catch {
    return `user ${process.geteuid?.() ?? "unknown"}`;
  }
}
