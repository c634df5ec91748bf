import { type Approver, approveAll, autoDeny, headless } from "../../approval/approver.ts";
import { ruledApprover } from "../../approval/rules.ts";
import type { Project } from "../../declarations/project.ts";
import type { ApprovalMode } from "../../sandbox/approval.ts";
import type { Emit } from "../model/events.ts";

export interface OpenOptions {
  readonly projectDir: string;
  /** Where Corral keeps its own: the seal, the gate, sockets. Absolute. */
  readonly stateDir: string;
  /** DOCKER_HOST, DOCKER_CONTEXT and their kind, and HOME: where the Engine is; and what `git.repos.*.credentials` names. */
  readonly engineEnv: Readonly<Record<string, string | undefined>>;
  readonly emit?: Emit;
  /** In place of the project's approval mode. */
  readonly approvalMode?: ApprovalMode;
  /** Whom the mode `interactive` asks; absent: nobody is there. */
  readonly person?: Approver;
  /** False: what is staged is copied, also where an overlay is to be had. */
  readonly overlays?: boolean;
  /** A program that decides in the person's place, such as a `callbackApprover`. */
  readonly approver?: Approver;
}

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
