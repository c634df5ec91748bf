import { SandboxError } from "./errors.ts";
import type { Violation } from "./violation.ts";
import { describeViolations } from "./wording.ts";

/** A child asked for more than its caller has: every violation, in code and in words. */
export class SandboxPermissionEscalationError extends SandboxError {
  readonly violations: readonly Violation[];

  constructor(violations: readonly Violation[]) {
    super("PERMISSION_ESCALATION", null, describeViolations(violations));
    this.violations = violations;
  }
}
