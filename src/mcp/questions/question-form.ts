import type { ElicitRequestFormParams } from "@modelcontextprotocol/server";
import pc from "picocolors";
import { lastingOf, mayBeOnce } from "../../approval/memory.ts";
import type { Answer } from "../../approval/question.ts";
import { type AskedOfPerson, choiceTexts, EVERYTHING, questionText } from "../../operations/wording/question-text.ts";

/** Clients show the text in windows of their own; lines are broken as for a terminal of this width. */
const COLUMNS = 100;
/** A question with a longer text is not asked: a person cannot approve what is not shown. */
const MAX_MESSAGE_CHARS = 100_000;
const PLAIN = pc.createColors(false);

/** What a client answers with; the rest of the protocol's words (decline, cancel) is a no as well. */
const CHOICES = ["deny", "once", "session"] as const;

/**
 * A question as a form that a client shows; null if it is too long to be shown whole. `isShared`: others use the same
 * session, so no approval for the session is offered.
 */
export function questionForm(question: AskedOfPerson, isShared: boolean): ElicitRequestFormParams | null {
  if ((question.diff ?? "").length > MAX_MESSAGE_CHARS) return null;
  const { above, message } = questionText(question, COLUMNS, PLAIN, EVERYTHING);
  const text = [...above, message].join("\n");
  const lasting = !isShared && lastsIn(question);
  const once = mayBeOnce(question);
  if (text.length > MAX_MESSAGE_CHARS) return null;
  const session = choiceTexts(question, 0).find(({ value }) => value === "session")?.label;
  const offered = { deny: true, once, session: lasting };
  const meanings = [
    "deny: no.",
    ...(once ? ["once: yes, for this alone."] : []),
    ...(lasting ? [`session: ${session}, while this connection lasts.`] : []),
  ];
  return {
    mode: "form",
    message: text,
    requestedSchema: {
      type: "object",
      properties: {
        answer: {
          type: "string",
          title: "Answer",
          description: meanings.join(" "),
          enum: CHOICES.filter((choice) => offered[choice]),
          default: "deny",
        },
      },
      required: ["answer"],
    },
  };
}

/** An answer that is not clearly a yes means no. A yes for longer than was offered counts for one use, if that is useful. */
export function answerIn(
  reply: unknown,
  question: AskedOfPerson,
  isShared: boolean,
): Exclude<Answer, "interrupt" | "tree"> {
  const { action, content } = (reply ?? {}) as { action?: unknown; content?: { answer?: unknown } };
  if (action !== "accept") return "no";
  const answer = content?.answer;
  if (answer === "once") return mayBeOnce(question) ? "once" : "no";
  if (answer !== "session" || !lastsIn(question)) return "no";
  if (!isShared) return "session";
  return mayBeOnce(question) ? "once" : "no";
}

function lastsIn(question: AskedOfPerson): boolean {
  return lastingOf(question) !== null;
}
