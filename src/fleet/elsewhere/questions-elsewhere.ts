import type { Decision } from "../../approval/approver.ts";
import { bugText } from "../../platform/errno.ts";
import type { AskedElsewhere, QuestionName, UnreadQuestion, WorkStore } from "../model/work.ts";
import { answerText } from "../stored/question-wire.ts";

interface Parts {
  /** The fleet, which this process owns. */
  readonly id: string;
  readonly work: Pick<WorkStore, "questions" | "readQuestions" | "answer">;
  /** Judges a question, and has it decided on. */
  readonly decide: (asked: AskedElsewhere, signal: AbortSignal) => Promise<Decision>;
  readonly onTrouble: (detail: string) => void;
}

/** Questions of machines that wait here at once, and their bytes; the others wait in the store. A larger one waits alone. */
const MAX_OPEN = 1000;
const MAX_OPEN_BYTES = 32 * 1024 ** 2;

/** A question that waits here, or whose answer the store may not have yet. */
interface Open {
  readonly bytes: number;
  readonly ends: AbortController;
  /** What was decided; it is decided once, and sent until the store no longer lists the question. */
  answer: string | null;
  isSending: boolean;
  /** The last look that had begun when the answer was sent; 0: none was. It may list the question although it is answered. */
  sentIn: number;
}

/** Questions of runs on machines: each is decided on here once, and withdrawn here if its run does not wait any more. */
export class QuestionsElsewhere {
  readonly #parts: Parts;
  readonly #open = new Map<string, Open>();
  readonly #answering = new Set<Promise<void>>();
  #looks = 0;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  /** Rejects if the store does not answer; what is open here stays. */
  async look(): Promise<void> {
    const { id, work } = this.#parts;
    this.#looks += 1;
    const look = this.#looks;
    const waiting = await work.questions(id, MAX_OPEN);
    this.#see(new Map(waiting.map((one) => [textOf(one), one])), look);
    const next = this.#next(waiting);
    if (next.length === 0) return;
    const sizes = new Map(next.map((one) => [textOf(one), one.bytes]));
    for (const asked of await work.readQuestions(id, next)) this.#begin(asked, sizes.get(textOf(asked)) ?? 0);
  }

  /** Withdraws what is open, and waits for that. Machines wait for the next owner of the fleet, as long as they may. */
  async end(): Promise<void> {
    for (const { ends } of this.#open.values()) ends.abort(new Error("its coordinator ends"));
    await Promise.all(this.#answering);
  }

  /** What is open here and waits no more is withdrawn or forgotten. An answer that did not arrive is sent again. */
  #see(waiting: ReadonlyMap<string, QuestionName>, look: number): void {
    for (const [text, open] of this.#open) {
      const question = waiting.get(text);
      if (open.answer === null) {
        if (question === undefined) open.ends.abort(new Error("its run does not wait any more"));
      } else if (!open.isSending && open.sentIn < look) {
        if (question === undefined) this.#open.delete(text);
        else this.#track(this.#send(question, open, open.answer));
      }
    }
  }

  /** The oldest that are not open here and have room. */
  #next(waiting: readonly UnreadQuestion[]): readonly UnreadQuestion[] {
    let [count, bytes] = [this.#open.size, 0];
    for (const open of this.#open.values()) bytes += open.bytes;
    const next: UnreadQuestion[] = [];
    for (const one of waiting) {
      if (this.#open.has(textOf(one))) continue;
      if (count >= MAX_OPEN || (count > 0 && bytes + one.bytes > MAX_OPEN_BYTES)) break;
      next.push(one);
      count += 1;
      bytes += one.bytes;
    }
    return next;
  }

  #begin(asked: AskedElsewhere, bytes: number): void {
    const open: Open = { bytes, ends: new AbortController(), answer: null, isSending: false, sentIn: 0 };
    this.#open.set(textOf(asked), open);
    this.#track(this.#answer(asked, open));
  }

  #track(work: Promise<void>): void {
    const answering = work.finally(() => this.#answering.delete(answering));
    this.#answering.add(answering);
  }

  async #answer(asked: AskedElsewhere, open: Open): Promise<void> {
    const { decide, onTrouble } = this.#parts;
    const { signal } = open.ends;
    const decision = await decide(asked, signal).catch((error: unknown): Decision => {
      if (!signal.aborted) onTrouble(`a question of a machine is denied: ${bugText(error)}`);
      return { outcome: "denied", scope: "once", reason: "an internal error of its coordinator" };
    });
    // The next owner of the fleet decides on it.
    if (signal.aborted) return void this.#open.delete(textOf(asked));
    open.answer = answerText(asked.json, decision);
    const { fleet, index, attempt, number } = asked;
    await this.#send({ fleet, index, attempt, number }, open, open.answer);
  }

  async #send({ fleet, index, attempt, number }: QuestionName, open: Open, answer: string): Promise<void> {
    const { work, onTrouble } = this.#parts;
    open.isSending = true;
    try {
      await work.answer({ fleet, index, attempt, number }, answer);
    } catch (error) {
      if (open.sentIn === 0)
        onTrouble(`an answer to a question of a machine did not reach the queue: ${(error as Error).message}`);
    }
    open.isSending = false;
    open.sentIn = this.#looks;
  }
}

function textOf({ index, attempt, number }: QuestionName): string {
  return `${index}:${attempt}:${number}`;
}
