import { type Approver, approveAll, autoDeny, headless } from "../../approval/approver.ts";
import { ruledApprover } from "../../approval/rules.ts";
import type { Project } from "../../declarations/project.ts";
import type { OpenOptions } from "./options.ts";

/** The project's rules come first, whatever the mode; what they do not speak of is the mode's to decide. */
export function approverFor(
  { approval }: Project,
  { approvalMode = approval.mode, approver, person }: Pick<OpenOptions, "approvalMode" | "approver" | "person">,
): Approver {
  const byMode = { interactive: approver ?? person ?? headless, approve_all: approveAll, auto_deny: autoDeny };
  return ruledApprover(approval.rules, byMode[approvalMode]);
}
