import type { ApprovalRequest, Approver, Decision } from "../../approval/approver.ts";
import { type Board, isShareable, type Shareable } from "../../approval/queued-approver.ts";

/** Routes each question to the approver of the session that it comes from, by the root of its tree of runs. */
export class QuestionRoutes implements Approver, Shareable {
  readonly #bySession = new Map<string, Approver>();
  readonly #otherwise: Approver;
  #board: Board | null = null;

  /** `otherwise`: for what comes from no session, or from one that is over. */
  constructor(otherwise: Approver) {
    this.#otherwise = otherwise;
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    return await (this.#bySession.get(request.root) ?? this.#otherwise).decide(request, signal);
  }

  shareOn(board: Board): void {
    this.#board = board;
    for (const approver of [...this.#bySession.values(), this.#otherwise]) this.#share(approver);
  }

  /** `root`: the session's run. Answers with how to end it. */
  add(root: string, approver: Approver): () => void {
    this.#share(approver);
    this.#bySession.set(root, approver);
    return () => this.#bySession.delete(root);
  }

  #share(approver: Approver): void {
    if (this.#board !== null && isShareable(approver)) approver.shareOn(this.#board);
  }
}
