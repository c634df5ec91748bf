import { type Approver, approveAll, autoDeny, headless } from "../../approval/approver.ts";
import { ruledApprover } from "../../approval/rules.ts";
import type { Project } from "../../declarations/project.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import type { OpenOptions } from "./options.ts";

/** The project's rules come first, whatever the mode; what they do not speak of is the mode's to decide. */
export function approverFor(
  { approval }: Project,
  { approvalMode = approval.mode, approver, person }: Pick<OpenOptions, "approvalMode" | "approver" | "person">,
): Approver {
  const byMode: Readonly<Record<ApprovalMode, Approver>> = {
    interactive: approver ?? person ?? headless,
    approve_all: approveAll,
    auto_deny: autoDeny,
  };
  return ruledApprover(approval.rules, byMode[approvalMode]);
}
