import type { ApprovalMode } from "../../approval/approver.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { askedOnApplying, comesBack, deliveryOf } from "../../sandbox/staging.ts";

/** A person's agreement that a run would need for what it changes to come back. */
export interface ExplainedConsent {
  /** Where it would write or delete. Virtual. */
  readonly paths: readonly string[];
  /** What the approval mode would do, where no rule of the project decides. */
  readonly decision: "approved" | "asked" | "denied";
  readonly note: string;
}

/** Null where nothing that it may change has to be asked for. */
export function explainConsent(worker: string, sandbox: Sandbox, mode: ApprovalMode): ExplainedConsent | null {
  const mounts = sandbox.mounts.filter((mount) => {
    const { write, delete: remove } = askedOnApplying(mount);
    return comesBack(mount) && deliveryOf(mount) === "view" && (write === "ask" || remove === "ask");
  });
  if (mounts.length === 0) return null;
  const paths = mounts.map((mount) => mount.path);
  const decision = DECISIONS[mode];
  const note = `What ${worker} changes in ${paths.join(", ")} waits until it has ended, and must be asked for then: ${OUTCOMES[decision]}`;
  return { paths, decision, note };
}

const DECISIONS = { interactive: "asked", approve_all: "approved", auto_deny: "denied" } as const;

const OUTCOMES: Readonly<Record<ExplainedConsent["decision"], string>> = {
  asked: "a person is shown it as a diff.",
  approved: "the approval mode approve_all agrees to it.",
  denied: "the approval mode auto_deny denies it, so nothing of it would come back.",
};
