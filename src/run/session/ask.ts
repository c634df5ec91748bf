import type { ApprovalRequest } from "../../approval/approver.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { Consent } from "../model/environment.ts";
import type { Job } from "../model/job.ts";

/** The subject in a refusal: `write /out/a`, or a whole sentence that says what needs approval and why. */
export type Said = string | { readonly sentence: string };

/** Rejects with `ToolRefusal` without consent. */
export type Ask = (
  what: Omit<ApprovalRequest, "run" | "root" | "worker">,
  said: Said,
  signal: AbortSignal,
) => Promise<void>;

/** Asks for the consent that a tool of this run needs. */
export function askFor(
  { run, root, worker, path }: Pick<Job, "run" | "root" | "worker" | "path">,
  { approver }: Consent,
): Ask {
  const called = path.length > 1 ? { through: path } : {};
  return async (what, said, signal) => {
    const decision = await approver.decide({ run, root, worker: worker.name, ...called, ...what }, signal);
    if (decision.outcome === "approved") return;
    const timedOut = decision.outcome === "timed_out";
    const answer = timedOut ? "no answer came in time" : `it was denied: ${decision.reason}`;
    const code = timedOut ? "APPROVAL_TIMED_OUT" : "APPROVAL_DENIED";
    const message =
      typeof said === "string"
        ? `To ${said} needs approval, and ${answer}.`
        : `${said.sentence} ${answer.charAt(0).toUpperCase()}${answer.slice(1)}.`;
    throw new ToolRefusal(code, message);
  };
}
