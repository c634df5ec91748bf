import type { ElicitRequestFormParams } from "@modelcontextprotocol/server";
import type { ApprovalRequest, Approver, Decision } from "../../approval/approver.ts";
import { unasked } from "../../approval/approver.ts";
import type { Board, Shareable } from "../../approval/board.ts";
import { mayBeOnce } from "../../approval/memory.ts";
import { QueuedApprover } from "../../approval/queued-approver.ts";
import type { Call } from "../calls/call.ts";
import { answerIn, questionForm } from "./question-form.ts";

/** Forms that may be open at one client at once. */
const MAX_AT_ONCE = 20;

export interface ClientApproverOptions {
  /** The call that a question comes from, if its client can be asked; null: no client can be asked. */
  readonly callInQuestion: () => Call | null;
  /** Shows a form to the person behind a call. */
  readonly ask: (call: Call, form: ElicitRequestFormParams, signal: AbortSignal) => Promise<unknown>;
  /** How long one form may be open. */
  readonly timeoutMs: number;
  /** True if the calls are of many clients: each may be a different person, so consent is for one use only. */
  readonly isShared: boolean;
  /** Decides if the client cannot ask a person. */
  readonly otherwise: Approver;
}

/**
 * Asks the person behind a client, by a form that the client shows. The question is the same as at a terminal, and the
 * person can agree to no more. Consent for the session lasts as long as the connection. If the connection is shared,
 * nothing is remembered, and no two calls share a question.
 */
export class ClientApprover implements Approver, Shareable {
  readonly #options: ClientApproverOptions;
  readonly #person: QueuedApprover;
  readonly #persons = new WeakMap<Call, QueuedApprover>();
  #board: Board | null = null;

  constructor(options: ClientApproverOptions) {
    this.#options = options;
    this.#person = this.#personBehind(options.callInQuestion);
  }

  shareOn(board: Board): void {
    this.#board = board;
    this.#person.shareOn(board);
  }

  async decide(request: ApprovalRequest, signal: AbortSignal): Promise<Decision> {
    const { callInQuestion, isShared, otherwise } = this.#options;
    const call = callInQuestion();
    if (call === null) return await otherwise.decide(request, signal);
    return await (isShared ? this.#personOf(call) : this.#person).decide(request, signal);
  }

  #personOf(call: Call): QueuedApprover {
    const known = this.#persons.get(call);
    if (known !== undefined) return known;
    const person = this.#personBehind(() => (call.asks ? call : null));
    if (this.#board !== null) person.shareOn(this.#board);
    this.#persons.set(call, person);
    return person;
  }

  #personBehind(callInQuestion: () => Call | null): QueuedApprover {
    const { ask, timeoutMs, isShared } = this.#options;
    return new QueuedApprover({
      ask: async (question, signal) => {
        const call = callInQuestion();
        if (call === null) return unasked("the client that could be asked is gone");
        if (isShared && !mayBeOnce(question)) return unasked("it would last, and others share this session");
        const form = questionForm(question, isShared);
        if (form === null) return unasked("it is too long to be shown to the client");
        return answerIn(await ask(call, form, signal), question, isShared);
      },
      timeoutMs,
      atOnce: MAX_AT_ONCE,
      who: "the person at the client",
      at: "client",
      onceOnly: isShared,
    });
  }
}

/** For the mode `interactive`, if neither the client nor a terminal can ask a person. */
export const nobodyAsks: Approver = {
  decide: async () => unasked("the approval mode is interactive, and the client offers no way to ask a person"),
};
