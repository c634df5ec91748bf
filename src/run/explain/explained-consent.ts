import { type ApprovalRule, mayApprove } from "../../approval/rules.ts";
import { isWritableDirectly } from "../../isolation/sources/host-executed.ts";
import { APPROVAL_MODES, type ApprovalMode, CHANGES } from "../../sandbox/approval.ts";
import { askedOnApplying, comesBack, deliveryOf } from "../../sandbox/expand.ts";
import { asksForHostExecuted } from "../../sandbox/host-executed.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";

/** A person's agreement that a run would need for what it changes to come back. */
export interface ExplainedConsent {
  /** Where it would write or delete. Virtual. */
  readonly paths: readonly string[];
  /** What the approval mode would do if no rule of the project decides. */
  readonly decision: "approved" | "asked" | "denied";
  /** True if a rule of the project may approve some of it, whatever the mode says. */
  readonly ruled: boolean;
  readonly note: string;
}

/** Null if nothing that it may change has to be asked for. */
export function explainConsent(
  worker: string,
  sandbox: Sandbox,
  mode: ApprovalMode,
  rules: readonly ApprovalRule[],
): ExplainedConsent | null {
  const asking = sandbox.mounts.flatMap((mount) => {
    const asked = askedOnApplying(mount);
    const operations = CHANGES.filter((operation) => asked[operation] === "ask");
    const waits = comesBack(mount) && deliveryOf(mount) === "view" && operations.length > 0;
    return waits ? [{ path: mount.path, operations }] : [];
  });
  if (asking.length === 0) return null;
  const paths = asking.map(({ path }) => path);
  const ruled = asking.some(({ path, operations }) => mayApprove(rules, { worker, operations, directory: path }));
  const { decision } = APPROVAL_MODES[mode];
  const outcome = `${ruled ? "a rule of the project may decide it, else " : ""}${outcomeOf(mode)}`;
  const note = `Changes of ${worker} in ${paths.join(", ")} wait until it has ended and need approval then: ${outcome}`;
  return { paths, decision, ruled, note };
}

/** What a mount that is bound into the cell cannot keep apart; null: nothing is written directly, or the policy allows it. */
export function directNote(worker: string, sandbox: Pick<Sandbox, "mounts" | "policy">): string | null {
  const paths = sandbox.mounts.filter(isWritableDirectly).map(({ path }) => path);
  if (paths.length === 0 || !asksForHostExecuted(sandbox)) return null;
  const what = "what programs of the host would execute there, such as .git/config or .vscode";
  return `Worker ${worker} writes in ${paths.join(", ")} directly: ${what}, is read-only to it if it exists when the container starts, unless it is deep in a very large folder, and can be made if it does not. \`stage: true\` closes this.`;
}

function outcomeOf(mode: ApprovalMode): string {
  const { decision } = APPROVAL_MODES[mode];
  if (decision === "asked") return "a person is asked, with a diff.";
  if (decision === "approved") return `the approval mode ${mode} approves it.`;
  return `the approval mode ${mode} denies it, so nothing of it would be applied.`;
}
