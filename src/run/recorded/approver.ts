import { type ApprovalRequest, type Approver, type Decision, denied } from "../../approval/approver.ts";
import { approvalDecided } from "../../audit/records.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import { onAbort } from "../../platform/within.ts";
import type { Records } from "../model/environment.ts";

/** A worker may ask for ever and be denied each time; the trail must not grow with it. */
const MAX_REFUSALS_PER_TREE = 1000;
/** Approvals by rules and earlier answers are bounded too: each of them is recorded. */
const MAX_APPROVALS_PER_TREE = 20_000;
/** Trees that are counted at once; the one that was counted first is forgotten first. */
const MAX_TREES = 1000;

const LAST_NOTE = "further denied requests of this tree of runs are not recorded";
const TOO_MANY = `this tree of runs already had ${MAX_APPROVALS_PER_TREE} approvals, which is the limit`;
const NOT_RECORDED = "the approval could not be recorded in the audit trail, and nothing happens unrecorded";

/** Passes a decision on after it is recorded. An approval that cannot be recorded does not count. */
export class RecordedApprover implements Approver {
  readonly #approver: Approver;
  readonly #trail: AuditTrail;
  readonly #around: Pick<Records, "emit" | "now">;
  readonly #refusals = new Counts();
  readonly #approvals = new Counts();

  constructor(approver: Approver, trail: AuditTrail, around: Pick<Records, "emit" | "now">) {
    this.#approver = approver;
    this.#trail = trail;
    this.#around = around;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    const askedAt = this.#around.now();
    const decided = await this.#answer(request, signal);
    const decision = this.#isTooMuch(request.root, decided) ? denied(TOO_MANY) : decided;
    const note = decision.outcome === "approved" ? undefined : this.#counted(request.root);
    if (note === "skip") return decision;
    const waitedMs = Math.round(this.#around.now() - askedAt);
    try {
      await this.#trail.append({ ...approvalDecided(request, decision, waitedMs), note });
      return decision;
    } catch (error) {
      const { run, root, worker } = request;
      const detail = (error as Error).message;
      this.#around.emit({ type: "trouble", run, root, parent: null, worker, attachments: [], detail });
      if (decision.outcome !== "approved") return decision;
      return { outcome: "denied", scope: "once", reason: NOT_RECORDED };
    }
  }

  /**
   * Rejects when the run is over. A run that is already over asks nothing: an approver that only listens for the end would
   * never notice. An approver that does not listen at all does not delay the run; its late answer is dropped.
   */
  async #answer(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    signal.throwIfAborted();
    const { promise: over, reject } = Promise.withResolvers<never>();
    using _ = onAbort(signal, () => reject(signal.reason));
    return await Promise.race([this.#approver.decide(request, signal), over]);
  }

  /** The note on the record of one more refusal; `skip` if there are enough. */
  #counted(root: string): string | undefined {
    const count = this.#refusals.next(root);
    if (count > MAX_REFUSALS_PER_TREE) return "skip";
    return count === MAX_REFUSALS_PER_TREE ? LAST_NOTE : undefined;
  }

  #isTooMuch(root: string, { outcome }: Decision): boolean {
    return outcome === "approved" && this.#approvals.next(root) > MAX_APPROVALS_PER_TREE;
  }
}

/** Counts by tree. */
class Counts {
  readonly #counts = new Map<string, number>();

  next(root: string): number {
    const count = (this.#counts.get(root) ?? 0) + 1;
    this.#counts.set(root, count);
    const [oldest] = this.#counts.keys();
    if (this.#counts.size > MAX_TREES && oldest !== undefined) this.#counts.delete(oldest);
    return count;
  }
}
