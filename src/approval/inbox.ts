import { createHash, randomBytes } from "node:crypto";
import type { ApprovalRequest, ApprovalScope, Approver, Decision } from "./approver.ts";
import { mayBeOnce } from "./memory.ts";
import { type Question, questionKey } from "./question.ts";
import { QueuedApprover } from "./queued-approver.ts";

/** Questions that may be open at once. `QueuedApprover` bounds those that wait behind them. */
const MAX_OPEN = 1000;
/** Decided questions that are remembered, to say who decided and what was shown. */
const MAX_DECIDED = 500;

/** A question that waits. */
export interface OpenQuestion {
  /** 12 hex digits. */
  readonly id: string;
  readonly project: string;
  /** Of everything that was shown: a decision names it. */
  readonly digest: string;
  /** ISO 8601. */
  readonly askedAt: string;
  readonly question: Question;
}

export interface DecidedQuestion extends OpenQuestion {
  readonly decidedAt: string;
  readonly outcome: Decision["outcome"] | "withdrawn";
  readonly scope: ApprovalScope | null;
  /** Null: no user; the answer did not come in time, or nothing waits for it any more. */
  readonly by: string | null;
}

export interface InboxAnswer {
  readonly answer: "once" | "tree" | "no";
  /** Of what was shown to the one who decides. */
  readonly digest: string;
  /** For a grant: one of `wider`, in place of the requested directory. */
  readonly directory?: string;
  readonly by: string;
}

/** `decided`: another user decided before. `changed`: it is not what was shown. `lasting`: `once` would have no effect. */
export type Answered = "ok" | "unknown" | "decided" | "changed" | "lasting" | "directory";

interface Open extends OpenQuestion {
  readonly settle: (decision: Decision) => void;
}

/** Where questions of all projects wait until the first of several people or programs decides. */
export class Inbox {
  readonly #open = new Map<string, Open>();
  readonly #decided = new Map<string, DecidedQuestion>();
  readonly #now: () => Date;

  constructor(now: () => Date = () => new Date()) {
    this.#now = now;
  }

  /** Asks here. `timeoutMs`: how long a question waits for its answer. */
  approver(project: string, timeoutMs: number): Approver {
    const ask = (question: Question, signal: AbortSignal) => this.#ask(project, question, signal);
    return new QueuedApprover({ ask, timeoutMs, atOnce: MAX_OPEN });
  }

  /** The oldest first. */
  get open(): readonly OpenQuestion[] {
    return [...this.#open.values()].map(({ settle: _, ...question }) => question);
  }

  /** The newest first. */
  get decided(): readonly DecidedQuestion[] {
    return [...this.#decided.values()].toReversed();
  }

  find(id: string): OpenQuestion | DecidedQuestion | null {
    return this.open.find((one) => one.id === id) ?? this.#decided.get(id) ?? null;
  }

  decide(id: string, { answer, digest, directory, by }: InboxAnswer): Answered {
    const open = this.#open.get(id);
    if (open === undefined) return this.#decided.has(id) ? "decided" : "unknown";
    if (digest !== open.digest) return "changed";
    const { question } = open;
    if (answer === "once" && !mayBeOnce(question)) return "lasting";
    if (directory !== undefined && directory !== question.directory && question.wider?.includes(directory) !== true)
      return "directory";
    const decision: Decision =
      answer === "no"
        ? { outcome: "denied", scope: "once", reason: `${by} denied it` }
        : {
            outcome: "approved",
            scope: answer,
            reason: `${by} approved it`,
            ...(directory === undefined ? {} : { directory }),
          };
    this.#close(open, { outcome: decision.outcome, scope: answer === "no" ? null : answer, by });
    open.settle(decision);
    return "ok";
  }

  async #ask(project: string, question: Question, signal: AbortSignal): Promise<Decision> {
    const id = randomBytes(6).toString("hex");
    const answer = Promise.withResolvers<Decision>();
    const askedAt = this.#now().toISOString();
    const open: Open = { id, project, digest: digestOf(id, question), askedAt, question, settle: answer.resolve };
    this.#open.set(id, open);
    const withdraw = (): void => {
      this.#close(open, { outcome: "withdrawn", scope: null, by: null });
      answer.reject(signal.reason);
    };
    signal.addEventListener("abort", withdraw, { once: true });
    try {
      return await answer.promise;
    } finally {
      signal.removeEventListener("abort", withdraw);
    }
  }

  #close(open: Open, how: Pick<DecidedQuestion, "outcome" | "scope" | "by">): void {
    const { settle: _, ...question } = open;
    this.#open.delete(open.id);
    this.#decided.set(open.id, { ...question, ...how, decidedAt: this.#now().toISOString() });
    const [oldest = ""] = this.#decided.keys();
    if (this.#decided.size > MAX_DECIDED) this.#decided.delete(oldest);
  }
}

/** Of one question, and not of another one that shows the same. */
function digestOf(id: string, question: ApprovalRequest): string {
  return createHash("sha256")
    .update(`${id}\n${questionKey(question)}`)
    .digest("hex");
}
