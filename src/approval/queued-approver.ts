import { type ApprovalRequest, type Approver, type Decision, denied } from "./approver.ts";
import { ApprovalMemory } from "./memory.ts";
import { type Answer, type Ask, questionKey } from "./question.ts";

/** Requests that may wait at once: of all runs, and of one. More are denied. */
const MAX_WAITING = 1000;
const MAX_WAITING_PER_RUN = 100;
/** How many time limits a request may wait for its question to be put. */
const MAX_TURNS = 10;
/** A longer timer would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

export interface QueuedApproverOptions {
  readonly ask: Ask;
  /** How long one question may be thought about, from when it is put. */
  readonly timeoutMs: number;
  readonly onInterrupt?: () => void;
  /** Questions that may be put side by side; absent: 1, for a person reads one at a time. */
  readonly atOnce?: number;
  /** Who answers, in the reasons of decisions; absent: a person. */
  readonly who?: string;
  /** Milliseconds of a clock that only goes forward. */
  readonly now?: () => number;
}

interface Waiting {
  readonly request: ApprovalRequest;
  readonly since: number;
  readonly settle: PromiseWithResolvers<Decision>;
}

/** One question, and the requests that its answer is for: one of each run, by the run. */
interface Group {
  readonly key: string;
  readonly waiting: Map<string, Waiting>;
  /** Aborted once nobody waits any more. */
  readonly left: AbortController;
}

/**
 * Asks, one question at a time. Runs that ask the same while it is not answered share one answer, and what is approved
 * for a tree of runs or for the session is remembered by worker, operation and directory; a denial never is.
 */
export class QueuedApprover implements Approver {
  readonly #options: QueuedApproverOptions;
  readonly #memory = new ApprovalMemory();
  /** All that are not answered, in the order in which they came. */
  readonly #groups = new Set<Group>();
  /** Those of them that were not put yet. */
  readonly #queue = new Set<Group>();
  #asking = 0;

  constructor(options: QueuedApproverOptions) {
    this.#options = options;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    signal.throwIfAborted();
    const remembered = this.#remembered(request);
    if (remembered !== null) return remembered;
    if (this.#isFullFor(request.run)) return denied("too many questions wait for an answer already");
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

  /** A run that asks the same twice has two questions: `once` is once for each run. */
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
      const reason = `nobody could be asked (${error instanceof Error ? error.message : String(error)})`;
      this.#answer(group, timeout.signal.aborted ? NOT_IN_TIME : denied(reason));
    } finally {
      clearTimeout(timer);
    }
  }

  /** Whoever waited for long behind other questions is told so, and not asked about when nobody needs it any more. */
  #dropOverdue(group: Group): void {
    const earliest = this.#now() - MAX_TURNS * this.#options.timeoutMs;
    for (const waiting of [...group.waiting.values()].filter(({ since }) => since < earliest)) {
      this.#part(group, waiting);
      waiting.settle.resolve(NOT_REACHED);
    }
  }

  #decisionOf(answer: Answer | Decision): Decision {
    if (typeof answer !== "string") return answer;
    const { who = "a person", onInterrupt } = this.#options;
    if (answer === "interrupt") onInterrupt?.();
    if (answer === "no" || answer === "interrupt") return denied(`${who} said no`);
    return { outcome: "approved", scope: answer, reason: `${who} agreed` };
  }

  #answer(group: Group, decision: Decision): void {
    const { outcome, scope } = decision;
    for (const waiting of [...group.waiting.values()]) {
      // Trees that share a question are each remembered.
      if (outcome === "approved" && scope !== "once") this.#memory.remember(waiting.request, scope);
      this.#part(group, waiting);
      waiting.settle.resolve(decision);
    }
    if (outcome === "approved" && scope !== "once") this.#answerRemembered();
  }

  /** What waits and is agreed to by now is not asked about; a question that nobody needs any more is withdrawn. */
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
    const { who = "a person" } = this.#options;
    const lasting = scope === "tree" ? "this tree of runs" : "this session";
    return { outcome: "approved", scope, reason: `${who} agreed to it for ${lasting}` };
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

const NOT_IN_TIME: Decision = { outcome: "timed_out", scope: "once", reason: "nobody answered in time" };
const NOT_REACHED: Decision = {
  outcome: "timed_out",
  scope: "once",
  reason: "its question was not reached in time, behind others",
};
