import { type ApprovalRequest, type Approver, type Decision, denied } from "../../approval/approver.ts";
import { MAX_TIMER_MS, onAbort } from "../../platform/within.ts";
import {
  type Answered,
  type ClaimedWork,
  MAX_QUESTION_BYTES,
  MAX_QUESTIONS,
  type Membership,
  type QuestionName,
  type WorkStore,
} from "../model/work.ts";
import { parsedAnswer, questionJson } from "../stored/rows.ts";

/** The first pause between two attempts. Each is twice as long as the one before, up to the longest. */
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;
/** The most different reasons that one wait reports. */
const MAX_TOLD = 10;

export interface CoordinatorWait {
  /** Ends the wait. */
  readonly over: AbortSignal;
  /** Whether the same may succeed later. What is not, such as a wrong password, is thrown. */
  readonly isPassing: (error: unknown) => boolean;
  /** Called with each reason to wait, once. */
  readonly onAway: (why: string) => void;
  /** It never rejects, and is over at once if `over` is aborted. */
  readonly pause: (ms: number) => Promise<unknown>;
}

/** Tries to open something until it is there, with growing pauses. Null: the wait was ended; what opens afterwards is closed. */
export async function whenThere<T extends AsyncDisposable>(
  open: () => Promise<T>,
  { over, isPassing, onAway, pause }: CoordinatorWait,
): Promise<T | null> {
  const told = new Set<string>();
  for (let pauseMs = FIRST_PAUSE_MS; !over.aborted; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    const ended = Promise.withResolvers<null>();
    const end = (): void => ended.resolve(null);
    over.addEventListener("abort", end, { once: true });
    const opening = open();
    try {
      const opened = await Promise.race([opening, ended.promise]);
      if (opened === null) void opening.then((late) => late[Symbol.asyncDispose]()).catch(() => {});
      return opened;
    } catch (error) {
      if (!isPassing(error)) throw error;
      const { message } = error as Error;
      if (!told.has(message) && told.size < MAX_TOLD) onAway(message);
      if (told.size < MAX_TOLD) told.add(message);
      await pause(pauseMs);
    } finally {
      over.removeEventListener("abort", end);
    }
  }
  return null;
}

/** How long after the time for an answer a coordinator may still say that none came. */
const GRACE_MS = 30_000;
/** The longest pause between two looks for answers, and the shortest. */
const LOOK_MS = 1000;
const MIN_MS = 20;

export interface AskingOptions {
  /** How long a question may wait for its answer. */
  readonly timeoutMs: number;
  readonly pause: (ms: number) => Promise<unknown>;
}

/** Where it asks. */
export interface AskedPlace {
  readonly membership: Pick<Membership, "questions" | "lost">;
  readonly store: Pick<WorkStore, "wake">;
}

interface Waiting {
  readonly json: string;
  readonly answer: (decision: Decision) => void;
}

/**
 * Asks the coordinator of a fleet what a run of one of its items needs approval for. What is not answered in time is denied. Of this
 * machine's own rules none is replaced: they decide before.
 */
export class AskingCoordinator implements Approver {
  readonly #options: AskingOptions;
  readonly #attempts = new Map<string, Omit<QuestionName, "number"> & { asked: number }>();
  readonly #waiting = new Map<string, Waiting>();
  #place: AskedPlace | null = null;
  #looking: AbortController | null = null;

  constructor(options: AskingOptions) {
    this.#options = options;
  }

  /** From now on it asks there, until the returned is disposed. */
  through(place: AskedPlace): Disposable {
    this.#place = place;
    return {
      [Symbol.dispose]: () => {
        if (this.#place === place) this.#place = null;
      },
    };
  }

  /** While this attempt runs, its runs can ask. */
  of({ fleet, request: { index }, attempt, run }: ClaimedWork): Disposable {
    this.#attempts.set(run, { fleet, index, attempt, asked: 0 });
    return { [Symbol.dispose]: () => void this.#attempts.delete(run) };
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    signal.throwIfAborted();
    const attempt = this.#attempts.get(request.root);
    const place = this.#place;
    if (attempt === undefined || place === null) return denied(NO_COORDINATOR);
    if (isChangeOfItem(request)) return { outcome: "approved", scope: "once", reason: AT_THE_END };
    const json = questionJson(request);
    if (Buffer.byteLength(json) > MAX_QUESTION_BYTES) return denied(TOO_LONG);
    if (attempt.asked >= MAX_QUESTIONS) return denied(TOO_MANY);
    const { asked, ...of } = attempt;
    attempt.asked += 1;
    return await this.#asked({ ...of, number: asked }, json, place, signal);
  }

  async #asked(name: QuestionName, json: string, place: AskedPlace, signal: AbortSignal): Promise<Decision> {
    const { questions, lost } = place.membership;
    const { promise, resolve, reject } = Promise.withResolvers<Decision>();
    this.#waiting.set(questionKey(name), { json, answer: resolve });
    using _ended = onAbort(signal, () => reject(signal.reason));
    using _lost = onAbort(lost, () => resolve(denied("the lease of this machine has ended")));
    const most = Math.min(this.#options.timeoutMs + GRACE_MS, MAX_TIMER_MS);
    const timer = setTimeout(() => resolve(NOT_IN_TIME), most);
    try {
      const asking = questions.ask(name, json).then(
        (taken) => void (taken.ok ? this.#look(place) : resolve(denied(taken.reason))),
        (error: Error) => resolve(denied(`the coordinator could not be asked: ${error.message}`)),
      );
      return await promise.finally(() => void asking.then(() => questions.unask(name)).catch(() => {}));
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(questionKey(name));
      if (this.#waiting.size === 0) this.#looking?.abort();
    }
  }

  /** Looks for answers while a question waits. */
  #look(place: AskedPlace): void {
    if (this.#looking !== null && !this.#looking.signal.aborted) return;
    const ends = new AbortController();
    this.#looking = ends;
    void this.#looks(place, ends.signal);
  }

  async #looks({ membership, store }: AskedPlace, over: AbortSignal): Promise<void> {
    while (!over.aborted) {
      // If the queue is away, the questions wait as long as they may.
      const answers = await membership.questions.answers().catch((): readonly Answered[] => []);
      for (const one of answers) this.#take(one);
      await this.#options.pause(MIN_MS);
      await store.wake(LOOK_MS, over);
    }
  }

  #take({ json, ...name }: Answered): void {
    const waiting = this.#waiting.get(questionKey(name));
    waiting?.answer(parsedAnswer(waiting.json, json) ?? denied(FORGED));
  }
}

/** Whatever the item's own run changes, it changes in views; its coordinator decides on that when the item has ended. */
function isChangeOfItem({ run, root, operations }: ApprovalRequest): boolean {
  return run === root && operations.every((operation) => operation === "write" || operation === "delete");
}

function questionKey({ fleet, index, attempt, number }: QuestionName): string {
  return `${fleet}:${index}:${attempt}:${number}`;
}

const NO_COORDINATOR = "no item of a fleet runs here that could ask its coordinator";
const AT_THE_END = "its coordinator decides on what the item changes when the item has ended";
const TOO_LONG = `the question is longer than the ${MAX_QUESTION_BYTES / 1024} KiB that a coordinator can be asked`;
const TOO_MANY = `the item already asked ${MAX_QUESTIONS} questions, which is the limit on other machines`;
const FORGED = "the answer in the queue is not to this question";
const NOT_IN_TIME: Decision = { outcome: "timed_out", scope: "once", reason: "no answer came in time" };
