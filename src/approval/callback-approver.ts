import { type ApprovalRequest, type Approver, type Decision, denied } from "./approver.ts";
import type { Answer } from "./question.ts";
import { QueuedApprover } from "./queued-approver.ts";

/** Calls that may be waited for at once; further questions queue. */
const MAX_AT_ONCE = 100;

export type CallbackAnswer = Exclude<Answer, "interrupt"> | Decision;

/** Decides for a program. The signal is aborted when the time is up, or when nobody waits for the answer any more. */
export type ApprovalCallback = (
  request: ApprovalRequest,
  signal: AbortSignal,
) => CallbackAnswer | Promise<CallbackAnswer>;

/**
 * Lets a program decide in place of a person: side by side, but once for runs that ask the same, and what it approves
 * for a tree or a session is remembered. A callback that throws, or answers with nothing that is known, denies; one
 * that does not answer in `timeoutMs` is `timed_out`.
 */
export function callbackApprover(callback: ApprovalCallback, options: { readonly timeoutMs: number }): Approver {
  return new QueuedApprover({
    ask: async ({ runs: _, ...request }, signal) => await answered(callback, request, signal),
    timeoutMs: options.timeoutMs,
    atOnce: MAX_AT_ONCE,
    who: "the program that is asked",
  });
}

async function answered(callback: ApprovalCallback, request: ApprovalRequest, signal: AbortSignal) {
  const aborted = Promise.withResolvers<never>();
  const abort = (): void => aborted.reject(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  try {
    const answer = await Promise.race([aborted.promise, callback(request, signal)]);
    return isAnswer(answer) ? answer : denied("the program that is asked gave no answer that is known");
  } catch (error) {
    signal.throwIfAborted();
    return denied(`the program that is asked failed: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

const OUTCOMES: readonly unknown[] = ["approved", "denied", "timed_out"];
const SCOPES: readonly unknown[] = ["once", "tree", "session"];

/** A program may be written in plain JavaScript; what it did not mean as an approval must not become one. */
function isAnswer(answer: unknown): answer is CallbackAnswer {
  if (typeof answer === "string") return answer === "no" || SCOPES.includes(answer);
  if (typeof answer !== "object" || answer === null) return false;
  const { outcome, scope, reason } = answer as Partial<Decision>;
  return OUTCOMES.includes(outcome) && SCOPES.includes(scope) && typeof reason === "string";
}
