import type { Decision } from "./approver.ts";
import { type Asked, lastingOf, mayBeOnce } from "./memory.ts";
import type { Question } from "./question.ts";

/** What may be answered elsewhere than where the question is asked. `tree`: until this tree of runs ends. */
export const BOARD_ANSWERS = ["once", "tree", "no"] as const;
export type BoardAnswer = (typeof BOARD_ANSWERS)[number];

/** Where a question is asked: at a terminal, a client of MCP, a program; or nowhere else than on the board. */
export type AskedAt = "terminal" | "client" | "program" | "board";

export interface PostOptions {
  readonly answers: readonly BoardAnswer[];
  readonly at: AskedAt;
  /** Who answers there, such as the name of the user. */
  readonly by: string;
}

/** A place where others may decide on a question as well. The first decision counts, and there is only one. */
export interface Board {
  /** `decided` is called at most once, and never if the question is settled here. Null: the board does not take it. */
  post(question: Question, options: PostOptions, decided: (end: DecidedThere) => void): Posted | null;
}

/** `question`: as it was shown to the one who decided, so it is for no run that is not named there. */
export interface DecidedThere {
  readonly decision: Decision;
  readonly question: Question;
}

export interface Posted {
  readonly id: string;
  /** Other runs wait for it now. If the board cannot show that, the question stays as it was shown. */
  change(question: Question): void;
  /** Ends the question with the decision that was made here. Not null: another one was faster, and that counts. */
  settle(decision: Decision): DecidedThere | null;
  /** No run waits for it any more. Does nothing if it is decided. */
  withdraw(): void;
}

/** An approver whose questions can be decided on a board as well. */
export interface Shareable {
  shareOn(board: Board): void;
}

export function isShareable(approver: object): approver is Shareable {
  return "shareOn" in approver && typeof approver.shareOn === "function";
}

/** What may be answered to a question. `once`: nothing that lasts, because others use the same session. */
export function answersTo(question: Asked, { onceOnly = false } = {}): BoardAnswer[] {
  const lasts = !onceOnly && lastingOf(question) !== null;
  return BOARD_ANSWERS.filter((answer) => answer === "no" || (answer === "once" ? mayBeOnce(question) : lasts));
}
