import type { ApprovalMode } from "../../approval/approver.ts";
import { mountsToAsk, withConsent } from "../../approval/consent.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";

/** A person's agreement that a run would need before it begins. */
export interface ExplainedConsent {
  /** Where it would write and delete. Virtual. */
  readonly paths: readonly string[];
  /** What the approval mode would do. */
  readonly decision: "approved" | "asked" | "denied";
  readonly note: string;
}

/** The sandbox is the one that the run would have once it is agreed to, since without that it would not run at all. */
export function explainConsent(
  worker: string,
  sandbox: Sandbox,
  mode: ApprovalMode,
): { readonly consent: ExplainedConsent | null; readonly sandbox: Sandbox } {
  const mounts = mountsToAsk(sandbox);
  if (mounts.length === 0) return { consent: null, sandbox };
  const paths = mounts.map((mount) => mount.path);
  const decision = DECISIONS[mode];
  const note = `Changes in ${paths.join(", ")} must be asked for: ${OUTCOMES[decision](worker)}`;
  return { consent: { paths, decision, note }, sandbox: withConsent(sandbox, mounts) };
}

const DECISIONS = { interactive: "asked", approve_all: "approved", auto_deny: "denied" } as const;

const OUTCOMES: Readonly<Record<ExplainedConsent["decision"], (worker: string) => string>> = {
  asked: (worker) => `a person is asked before ${worker} begins, and what is shown here is what they would agree to.`,
  approved: () => "the approval mode approve_all agrees to it.",
  denied: (worker) => `the approval mode auto_deny denies it, so ${worker} would not run.`,
};
