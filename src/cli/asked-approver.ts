import type { ApprovalRequest, Approver, Decision } from "../approval/approver.ts";

/** What a person may answer. `interrupt`: they want all of it to stop. */
export type Answer = "once" | "session" | "no" | "interrupt";

/** Puts one question to a person. Rejects when the signal is aborted. */
export type Ask = (question: Question, signal: AbortSignal) => Promise<Answer>;

export interface Question {
  readonly worker: string;
  readonly operations: readonly string[];
  readonly paths: readonly string[];
  /** The command line that is to be run, where it is about one. */
  readonly command?: string;
  /** Runs that wait for this answer. */
  readonly runs: number;
}

export interface AskedApproverOptions {
  readonly ask: Ask;
  /** How long a person may think about one question. */
  readonly timeoutMs: number;
  readonly onInterrupt: () => void;
}

interface Waiting {
  readonly request: ApprovalRequest;
  readonly settle: PromiseWithResolvers<Decision>;
}

/**
 * Asks a person, one question at a time. Runs that wait with equal questions share one answer, and an approval for
 * the session is remembered for the very same question; a denial never is.
 */
export class AskedApprover implements Approver {
  readonly #options: AskedApproverOptions;
  readonly #approved = new Set<string>();
  /** Questions that were not put yet, in the order in which they came. */
  readonly #questions = new Map<string, Waiting[]>();
  #asking = false;

  constructor(options: AskedApproverOptions) {
    this.#options = options;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    signal.throwIfAborted();
    const key = keyOf(request);
    if (this.#approved.has(key)) return REMEMBERED;
    const waiting: Waiting = { request, settle: Promise.withResolvers() };
    const group = this.#questions.get(key) ?? [];
    this.#questions.set(key, [...group, waiting]);
    const leave = (): void => {
      this.#leave(key, waiting);
      waiting.settle.reject(signal.reason);
    };
    signal.addEventListener("abort", leave, { once: true });
    void this.#askAll();
    try {
      return await waiting.settle.promise;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  /** A run that was cancelled while its question waits is not asked about any more. */
  #leave(key: string, waiting: Waiting): void {
    const rest = (this.#questions.get(key) ?? []).filter((other) => other !== waiting);
    if (rest.length > 0) this.#questions.set(key, rest);
    else this.#questions.delete(key);
  }

  async #askAll(): Promise<void> {
    if (this.#asking) return;
    this.#asking = true;
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const [key, group] = next;
      this.#questions.delete(key);
      await this.#askOne(key, group);
    }
    this.#asking = false;
  }

  #next(): [string, Waiting[]] | undefined {
    return this.#questions.entries().next().value;
  }

  async #askOne(key: string, group: readonly Waiting[]): Promise<void> {
    const [first] = group;
    if (first === undefined) return;
    if (this.#approved.has(key)) {
      for (const { settle } of group) settle.resolve(REMEMBERED);
      return;
    }
    const { worker, operations, paths, command } = first.request;
    const everybodyLeft = new AbortController();
    void Promise.allSettled(group.map(({ settle }) => settle.promise)).then(() => everybodyLeft.abort());
    const timeout = AbortSignal.timeout(this.#options.timeoutMs);
    const about = command === undefined ? {} : { command };
    const question = { worker, operations, paths, ...about, runs: group.length };
    const decision = await this.#options.ask(question, AbortSignal.any([everybodyLeft.signal, timeout])).then(
      (answer) => this.#decisionOf(answer, key),
      (error: unknown): Decision => {
        if (timeout.aborted) return { outcome: "timed_out", scope: "once", reason: "nobody answered in time" };
        if (everybodyLeft.signal.aborted) return DENIED;
        return { outcome: "denied", scope: "once", reason: `nobody could be asked (${(error as Error).message})` };
      },
    );
    for (const { settle } of group) settle.resolve(decision);
  }

  #decisionOf(answer: Answer, key: string): Decision {
    if (answer === "interrupt") this.#options.onInterrupt();
    if (answer === "session") this.#approved.add(key);
    if (answer === "once" || answer === "session")
      return { outcome: "approved", scope: answer, reason: "a person agreed" };
    return DENIED;
  }
}

const REMEMBERED: Decision = {
  outcome: "approved",
  scope: "session",
  reason: "a person agreed to it for this session",
};
const DENIED: Decision = { outcome: "denied", scope: "once", reason: "a person said no" };

/** Questions are equal where nothing that a person reads of them differs, a command line least of all. */
function keyOf({ worker, operations, paths, command }: ApprovalRequest): string {
  return JSON.stringify([worker, [...operations].sort(), [...paths].sort(), command ?? null]);
}
