import type { ApprovalRequest, Approver, Decision } from "../../approval/approver.ts";

/** Routes each question to the approver of the session that it comes from, by the root of its tree of runs. */
export class QuestionRoutes implements Approver {
  readonly #bySession = new Map<string, Approver>();
  readonly #otherwise: Approver;

  /** `otherwise`: for what comes from no session, or from one that is over. */
  constructor(otherwise: Approver) {
    this.#otherwise = otherwise;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    return await (this.#bySession.get(request.root) ?? this.#otherwise).decide(request, signal);
  }

  /** `root`: the session's run. Answers with how to end it. */
  add(root: string, approver: Approver): () => void {
    this.#bySession.set(root, approver);
    return () => this.#bySession.delete(root);
  }
}
