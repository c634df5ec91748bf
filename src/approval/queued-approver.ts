import { MAX_TIMER_MS } from "../platform/within.ts";
import {
  type Answer,
  type ApprovalRequest,
  type Approver,
  type Ask,
  type Decision,
  denied,
  isHostExecuted,
  type Question,
  questionKey,
  unasked,
} from "./approver.ts";
import { ApprovalMemory, type ConsentSubject, lastingOf, mayBeOnce } from "./memory.ts";

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
  /** How long it is asked when its turn has come; then it is denied. */
  readonly timeoutMs: number;
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
export function answersTo(question: ConsentSubject, { onceOnly = false } = {}): BoardAnswer[] {
  const lasts = !onceOnly && lastingOf(question) !== null;
  return BOARD_ANSWERS.filter((answer) => answer === "no" || (answer === "once" ? mayBeOnce(question) : lasts));
}

/** Requests that may wait at the same time: of all runs, and of one run. More are denied. */
const MAX_WAITING = 1000;
const MAX_WAITING_PER_RUN = 100;
/** How long a request may wait before its question is asked, in multiples of the time limit for one answer. */
const MAX_TURNS = 10;

export interface QueuedApproverOptions {
  /** Null: only the board is asked. */
  readonly ask: Ask | null;
  /** The time limit for an answer, from the moment the question is asked. */
  readonly timeoutMs: number;
  readonly onInterrupt?: () => void;
  /** Concurrent questions; absent: 1, because a person reads one at a time. */
  readonly atOnce?: number;
  /** Who answers, for the reasons of decisions; absent: the user. */
  readonly who?: string;
  /** Milliseconds of a monotonic clock. */
  readonly now?: () => number;
  /** Where and whom it asks, as others see it on a board. */
  readonly at?: AskedAt;
  readonly by?: string;
  /** How long a question is only asked here; a program often answers at once. Absent: 0. */
  readonly postAfterMs?: number;
  /** On a board no answer lasts, because others use the same session. */
  readonly onceOnly?: boolean;
  /** A question that was open here was decided on the board. */
  readonly onDecidedElsewhere?: (decision: Decision) => void;
  /** A question is on the board, and asked nowhere else. */
  readonly onPosted?: (id: string, question: Question) => void;
}

interface Waiting {
  readonly request: ApprovalRequest;
  readonly since: number;
  readonly settle: PromiseWithResolvers<Decision>;
}

/** One question and the requests that share its answer, at most one of each run, by run. */
interface Group {
  readonly key: string;
  readonly waiting: Map<string, Waiting>;
  /** Aborted when no request waits any more. */
  readonly left: AbortController;
  /** On the board; null: not there, or not yet. */
  posted: Posted | null;
  /** Until it is posted. */
  timer: NodeJS.Timeout | undefined;
  /** What another one decided on the board. */
  elsewhere: Decision | null;
}

/**
 * Asks one question at a time. Runs with the same open question share one answer. Approvals for a tree of runs or for the
 * session are remembered by worker, operation and directory; denials never are.
 */
export class QueuedApprover implements Approver, Shareable {
  readonly #options: QueuedApproverOptions;
  readonly #memory = new ApprovalMemory();
  /** All open questions, in the order in which they came. */
  readonly #groups = new Set<Group>();
  /** The open questions that were not asked yet. */
  readonly #queue = new Set<Group>();
  #asking = 0;
  #board: Board | null = null;

  constructor(options: QueuedApproverOptions) {
    this.#options = options;
  }

  /** From now on questions can be decided on the board as well, also while they wait for their turn here. */
  shareOn(board: Board): void {
    this.#board = board;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    signal.throwIfAborted();
    const remembered = this.#remembered(request);
    if (remembered !== null) return remembered;
    if (this.#isFullFor(request.run)) return denied("too many questions already wait for an answer");
    const waiting: Waiting = { request, since: this.#now(), settle: Promise.withResolvers() };
    this.#join(waiting);
    const leave = (): void => {
      const group = [...this.#groups].find((one) => one.waiting.get(request.run) === waiting);
      if (group !== undefined) this.#part(group, waiting);
      waiting.settle.reject(signal.reason);
      if (group !== undefined) this.#showWaiting(group);
    };
    signal.addEventListener("abort", leave, { once: true });
    this.#askNext();
    try {
      return await waiting.settle.promise;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  #isFullFor(run: string): boolean {
    const groups = [...this.#groups];
    if (groups.reduce((sum, { waiting }) => sum + waiting.size, 0) >= MAX_WAITING) return true;
    return groups.filter(({ waiting }) => waiting.has(run)).length >= MAX_WAITING_PER_RUN;
  }

  /** A run that asks the same twice gets two questions, because `once` approves one request of a run. */
  #join(waiting: Waiting): void {
    const { run } = waiting.request;
    const key = questionKey(waiting.request);
    const open = [...this.#groups].find((group) => group.key === key && !group.waiting.has(run));
    if (open !== undefined) {
      open.waiting.set(run, waiting);
      this.#showWaiting(open);
      return;
    }
    const group = this.#open(key, [waiting]);
    const { postAfterMs = 0 } = this.#options;
    if (postAfterMs === 0) this.#post(group);
    else group.timer = setTimeout(() => this.#post(group), postAfterMs);
  }

  #open(key: string, waiting: readonly Waiting[]): Group {
    const group: Group = {
      key,
      waiting: new Map(waiting.map((one) => [one.request.run, one])),
      left: new AbortController(),
      posted: null,
      timer: undefined,
      elsewhere: null,
    };
    this.#groups.add(group);
    this.#queue.add(group);
    return group;
  }

  #post(group: Group): void {
    const [first] = group.waiting.values();
    if (first === undefined) return;
    const { request } = first;
    const { at = "program", who = "the user", by = who, onceOnly = false, ask, onPosted } = this.#options;
    const question = questionOf(first, group);
    const options = { answers: answersTo(request, { onceOnly }), at, by, timeoutMs: this.#options.timeoutMs };
    // Without an answer that could be given there, it is asked here alone.
    if (this.#board === null || options.answers.length < 2) return;
    group.posted = this.#board.post(question, options, (end) => {
      this.#answerElsewhere(group, end);
      this.#askNext();
    });
    if (ask === null && group.posted !== null) onPosted?.(group.posted.id, question);
  }

  /** The question on the board names all runs that wait for it, for those who decide for one of them. */
  #showWaiting(group: Group): void {
    const [first] = group.waiting.values();
    if (first !== undefined) group.posted?.change(questionOf(first, group));
  }

  /** A run that joined in the moment of the decision was not shown to the one who decided: it gets a new question. */
  #answerElsewhere(group: Group, { decision, question }: DecidedThere): void {
    group.elsewhere = decision;
    const shown = new Set(question.waiting.map(({ run }) => run));
    const others = [...group.waiting.values()].filter(({ request }) => !shown.has(request.run));
    for (const { request } of others) group.waiting.delete(request.run);
    const next = others.length === 0 ? null : this.#open(group.key, others);
    if (group.waiting.size === 0) this.#close(group);
    this.#answer(group, decision);
    if (next !== null) this.#post(next);
  }

  #askNext(): void {
    const { atOnce = 1 } = this.#options;
    for (const group of this.#queue) {
      if (this.#asking >= atOnce) return;
      this.#queue.delete(group);
      this.#asking++;
      void this.#askOne(group).finally(() => {
        this.#asking--;
        this.#askNext();
      });
    }
  }

  async #askOne(group: Group): Promise<void> {
    this.#dropOverdue(group);
    const [first] = group.waiting.values();
    if (first === undefined) return;
    const timeout = new AbortController();
    const timer = setTimeout(() => timeout.abort(), Math.min(this.#options.timeoutMs, MAX_TIMER_MS));
    const question = questionOf(first, group);
    const signal = AbortSignal.any([group.left.signal, timeout.signal]);
    try {
      const answer = await (this.#options.ask?.(question, signal) ?? onlyPosted(group, signal));
      this.#settle(group, this.#decisionOf(answer));
    } catch (error) {
      const reason = `the question could not be asked (${error instanceof Error ? error.message : String(error)})`;
      this.#settle(group, timeout.signal.aborted ? NOT_IN_TIME : denied(reason));
    } finally {
      clearTimeout(timer);
    }
    if (group.elsewhere !== null && this.#options.ask !== null) this.#options.onDecidedElsewhere?.(group.elsewhere);
  }

  /** With what was answered here, unless another one was faster on the board. */
  #settle(group: Group, decision: Decision): void {
    if (group.waiting.size === 0) return;
    // That no person was asked here is no answer to those who look at the board: the question is withdrawn there.
    const faster = decision.unasked ? null : (group.posted?.settle(decision) ?? null);
    if (faster === null) this.#answer(group, decision);
    else this.#answerElsewhere(group, faster);
  }

  /** Times out requests that waited too long behind other questions. */
  #dropOverdue(group: Group): void {
    const earliest = this.#now() - MAX_TURNS * this.#options.timeoutMs;
    for (const waiting of [...group.waiting.values()].filter(({ since }) => since < earliest)) {
      this.#part(group, waiting);
      waiting.settle.resolve(NOT_REACHED);
      this.#showWaiting(group);
    }
  }

  #decisionOf(answer: Answer | Decision): Decision {
    if (typeof answer !== "string") return answer;
    const { who = "the user", onInterrupt } = this.#options;
    if (answer === "interrupt") onInterrupt?.();
    if (answer === "no" || answer === "interrupt") return denied(`${who} denied it`);
    return { outcome: "approved", scope: answer, reason: `${who} approved it` };
  }

  #answer(group: Group, decision: Decision): void {
    const { outcome, scope } = decision;
    for (const waiting of [...group.waiting.values()]) {
      // Trees that share a question each remember the approval.
      if (outcome === "approved" && scope !== "once")
        this.#memory.remember(grantedIn(waiting.request, decision), scope);
      this.#part(group, waiting);
      waiting.settle.resolve(decision);
    }
    if (outcome === "approved" && scope !== "once") this.#answerRemembered();
  }

  /** Answers waiting requests that the new approval covers, and withdraws their questions. */
  #answerRemembered(): void {
    for (const group of [...this.#groups]) {
      for (const waiting of [...group.waiting.values()]) {
        const remembered = this.#remembered(waiting.request);
        if (remembered === null) continue;
        this.#part(group, waiting);
        waiting.settle.resolve(remembered);
        this.#showWaiting(group);
      }
    }
  }

  #remembered(request: ApprovalRequest): Decision | null {
    const scope = this.#memory.scopeOf(request);
    if (scope === null) return null;
    const { who = "the user" } = this.#options;
    const lasting = scope === "tree" ? "this tree of runs" : "this session";
    return { outcome: "approved", scope, reason: `${who} approved it for ${lasting}` };
  }

  #part(group: Group, waiting: Waiting): void {
    group.waiting.delete(waiting.request.run);
    if (group.waiting.size === 0) this.#close(group);
  }

  #close(group: Group): void {
    this.#groups.delete(group);
    this.#queue.delete(group);
    clearTimeout(group.timer);
    group.posted?.withdraw();
    group.left.abort();
  }

  #now(): number {
    return (this.#options.now ?? (() => performance.now()))();
  }
}

function questionOf({ request }: Waiting, { waiting }: Group): Question {
  const all = [...waiting.values()].map(({ request: { run, root } }) => ({ run, root }));
  return { ...request, runs: all.length, waiting: all };
}

/** Waits for the board alone. */
async function onlyPosted({ posted }: Group, signal: AbortSignal): Promise<Decision> {
  if (posted === null) return unasked("the question could not be put into the inbox, and there is nowhere else to ask");
  signal.throwIfAborted();
  return await new Promise((_, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason), { once: true }),
  );
}

/** A wider directory is what was approved, if the request allowed to choose it. */
function grantedIn(request: ApprovalRequest, { directory }: Decision): ApprovalRequest {
  if (directory === undefined || request.wider?.includes(directory) !== true) return request;
  return { ...request, directory, paths: [directory] };
}

const NOT_IN_TIME: Decision = { outcome: "timed_out", scope: "once", reason: "no answer came in time" };
const NOT_REACHED: Decision = {
  outcome: "timed_out",
  scope: "once",
  reason: "the question waited too long behind other questions",
};

/** Concurrent calls of the callback; further questions queue. */
const MAX_AT_ONCE = 100;
/** A callback that needs longer probably asks a person, who may as well answer in the inbox. */
const POST_AFTER_MS = 250;
const DEFAULT_TIMEOUT_MS = 300_000;

export type CallbackAnswer = Exclude<Answer, "interrupt"> | Decision;

/** Decides on behalf of a program. The signal is aborted after the time limit, or if no run waits for the answer any more. */
export type ApprovalCallback = (
  request: ApprovalRequest,
  signal: AbortSignal,
) => CallbackAnswer | Promise<CallbackAnswer>;

export interface CallbackOptions {
  /** How long one call may take. Absent: five minutes, as for a person. */
  readonly timeoutMs?: number;
}

/**
 * Lets a program decide in place of a person. Questions are concurrent; runs that ask the same share one call, and
 * approvals for a tree or a session are remembered. A callback that throws or returns an unknown answer denies; one that
 * does not answer within `timeoutMs` is `timed_out`. What programs of the host would execute (`hostExecuted` of the request) is
 * approved by `once` alone: an answer for more is a general yes, and denies it.
 */
export function callbackApprover<const Given extends CallbackAnswer = CallbackAnswer>(
  // The compiler keeps the type of an answer only if it infers it: `async () => { return "once"; }` is no text.
  callback: (request: ApprovalRequest, signal: AbortSignal) => Given | Promise<Given> | Promise<CallbackAnswer>,
  options: CallbackOptions = {},
): Approver {
  const { timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  if (!(timeoutMs > 0)) throw new RangeError("`timeoutMs` of callbackApprover must be a number above 0");
  return new QueuedApprover({
    ask: async ({ runs: _, waiting: __, ...request }, signal) => await answered(callback, request, signal),
    timeoutMs,
    atOnce: MAX_AT_ONCE,
    who: "the approval callback",
    postAfterMs: POST_AFTER_MS,
  });
}

async function answered(callback: ApprovalCallback, request: ApprovalRequest, signal: AbortSignal) {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => aborted.reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    const answer = await Promise.race([aborted.promise, callback(request, signal)]);
    if (!isAnswer(answer)) return denied("the approval callback returned an unknown answer");
    if (isHostExecuted(request) && isGeneralYes(answer))
      return denied("programs of this machine would execute it, which the approval callback can approve only `once`");
    return answer;
  } catch (error) {
    signal.throwIfAborted();
    return denied(`the approval callback failed: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

function isGeneralYes(answer: CallbackAnswer): boolean {
  if (typeof answer === "string") return answer === "tree" || answer === "session";
  return answer.outcome === "approved" && answer.scope !== "once";
}

const OUTCOMES: readonly unknown[] = ["approved", "denied", "timed_out"];
const SCOPES: readonly unknown[] = ["once", "tree", "session"];

/** The callback may be plain JavaScript: anything but a valid answer must not count as an approval. */
function isAnswer(answer: unknown): answer is CallbackAnswer {
  if (typeof answer === "string") return answer === "no" || SCOPES.includes(answer);
  if (typeof answer !== "object" || answer === null) return false;
  const { outcome, scope, reason } = answer as Partial<Decision>;
  return OUTCOMES.includes(outcome) && SCOPES.includes(scope) && typeof reason === "string";
}
