import type { Decision } from "../../approval/approver.ts";
import { bugText } from "../../platform/bug-text.ts";
import type { AskedElsewhere, QuestionName } from "../model/question.ts";
import type { WorkStore } from "../model/work.ts";
import { answerText } from "../stored/question-text.ts";

interface Parts {
  /** The fleet, which this process owns. */
  readonly id: string;
  readonly work: Pick<WorkStore, "questions" | "answer">;
  /** Judges a question, and has it decided on. */
  readonly decide: (asked: AskedElsewhere, signal: AbortSignal) => Promise<Decision>;
  readonly onTrouble: (detail: string) => void;
}

/** Questions of machines that wait here at once; the others wait in the store. */
const MAX_OPEN = 1000;

/** What runs on machines ask: each question is decided on here once, and withdrawn here if its run does not wait any more. */
export class QuestionsElsewhere {
  readonly #parts: Parts;
  readonly #open = new Map<string, AbortController>();
  readonly #answering = new Set<Promise<void>>();

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Rejects if the store does not answer; what is open here stays. */
  async look(): Promise<void> {
    const { id, work } = this.#parts;
    const asked = await work.questions(id, MAX_OPEN);
    const still = new Set(asked.map(textOf));
    for (const [name, ends] of this.#open)
      if (!still.has(name)) ends.abort(new Error("its run does not wait any more"));
    for (const one of asked) if (!this.#open.has(textOf(one)) && this.#open.size < MAX_OPEN) this.#begin(one);
  }

  /** Withdraws what is open, and waits for that. Machines wait for the next owner of the fleet, as long as they may. */
  async end(): Promise<void> {
    for (const ends of this.#open.values()) ends.abort(new Error("its coordinator ends"));
    await Promise.all(this.#answering);
  }

  #begin(asked: AskedElsewhere): void {
    const ends = new AbortController();
    const name = textOf(asked);
    this.#open.set(name, ends);
    const answering = this.#answer(asked, ends.signal)
      .catch((error: Error) => this.#parts.onTrouble(`a question of a machine was not answered: ${error.message}`))
      .finally(() => {
        this.#open.delete(name);
        this.#answering.delete(answering);
      });
    this.#answering.add(answering);
  }

  async #answer(asked: AskedElsewhere, signal: AbortSignal): Promise<void> {
    const { work, decide, onTrouble } = this.#parts;
    const decision = await decide(asked, signal).catch((error: unknown): Decision => {
      if (!signal.aborted) onTrouble(`a question of a machine is denied: ${bugText(error)}`);
      return { outcome: "denied", scope: "once", reason: "an internal error of its coordinator" };
    });
    // The next owner of the fleet decides on it.
    if (signal.aborted) return;
    const { fleet, index, attempt, number, json } = asked;
    await work.answer({ fleet, index, attempt, number }, answerText(json, decision));
  }
}

function textOf({ index, attempt, number }: QuestionName): string {
  return `${index}:${attempt}:${number}`;
}
