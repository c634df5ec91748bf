import { type Answer, type ApprovalRequest, type Approver, type Decision, denied, isHostExecuted } from "./approver.ts";
import { QueuedApprover } from "./queued-approver.ts";

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
