import { MAX_TIMER_MS } from "../platform/max-timer.ts";
import { type ApprovalRequest, type Approver, type Decision, denied } from "./approver.ts";
import { ApprovalMemory } from "./memory.ts";
import { type Answer, type Ask, questionKey } from "./question.ts";

/** Requests that may wait at the same time: of all runs, and of one run. More are denied. */
const MAX_WAITING = 1000;
const MAX_WAITING_PER_RUN = 100;
/** How long a request may wait before its question is asked, in multiples of the time limit for one answer. */
const MAX_TURNS = 10;

export interface QueuedApproverOptions {
  readonly ask: Ask;
  /** The time limit for an answer, from the moment the question is asked. */
  readonly timeoutMs: number;
  readonly onInterrupt?: () => void;
  /** Concurrent questions; absent: 1, because a person reads one at a time. */
  readonly atOnce?: number;
  /** Who answers, for the reasons of decisions; absent: the user. */
  readonly who?: string;
  /** Milliseconds of a monotonic clock. */
  readonly now?: () => number;
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
}

/**
 * Asks one question at a time. Runs with the same open question share one answer. Approvals for a tree of runs or for the
 * session are remembered by worker, operation and directory; denials never are.
 */
export class QueuedApprover implements Approver {
  readonly #options: QueuedApproverOptions;
  readonly #memory = new ApprovalMemory();
  /** All open questions, in the order in which they came. */
  readonly #groups = new Set<Group>();
  /** The open questions that were not asked yet. */
  readonly #queue = new Set<Group>();
  #asking = 0;

  constructor(options: QueuedApproverOptions) {
    this.#options = options;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    signal.throwIfAborted();
    const remembered = this.#remembered(request);
    if (remembered !== null) return remembered;
    if (this.#isFullFor(request.run)) return denied("too many questions already wait for an answer");
    const group = this.#groupFor(request);
    const waiting: Waiting = { request, since: this.#now(), settle: Promise.withResolvers() };
    group.waiting.set(request.run, waiting);
    const leave = (): void => {
      this.#part(group, waiting);
      waiting.settle.reject(signal.reason);
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
  #groupFor(request: ApprovalRequest): Group {
    const key = questionKey(request);
    const open = [...this.#groups].find((group) => group.key === key && !group.waiting.has(request.run));
    if (open !== undefined) return open;
    const group: Group = { key, waiting: new Map(), left: new AbortController() };
    this.#groups.add(group);
    this.#queue.add(group);
    return group;
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
    const question = { ...first.request, runs: group.waiting.size };
    try {
      const answer = await this.#options.ask(question, AbortSignal.any([group.left.signal, timeout.signal]));
      this.#answer(group, this.#decisionOf(answer));
    } catch (error) {
      const reason = `the question could not be asked (${error instanceof Error ? error.message : String(error)})`;
      this.#answer(group, timeout.signal.aborted ? NOT_IN_TIME : denied(reason));
    } finally {
      clearTimeout(timer);
    }
  }

  /** Times out requests that waited too long behind other questions. */
  #dropOverdue(group: Group): void {
    const earliest = this.#now() - MAX_TURNS * this.#options.timeoutMs;
    for (const waiting of [...group.waiting.values()].filter(({ since }) => since < earliest)) {
      this.#part(group, waiting);
      waiting.settle.resolve(NOT_REACHED);
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
    if (group.waiting.size > 0) return;
    this.#groups.delete(group);
    this.#queue.delete(group);
    group.left.abort();
  }

  #now(): number {
    return (this.#options.now ?? (() => performance.now()))();
  }
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
