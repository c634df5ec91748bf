import type { Approver } from "../../approval/approver.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import type { Masking } from "../../secrets/redactor.ts";
import type { Emit } from "../model/events.ts";

/* What leaves a tree of runs, without the secrets that are inside of its cells. */

/** Output is masked where it is read: a secret may be split between two pieces of it. */
export function maskedEmit(emit: Emit, masking: Masking): Emit {
  return (event) => emit(event.type === "output" ? event : masking.value(event.root, event));
}

export function maskedTrail(trail: AuditTrail, masking: Masking): AuditTrail {
  return { append: (record) => trail.append("root" in record ? masking.value(record.root, record) : record) };
}

/** Who decides sees that there is a secret, and not which. */
export function maskedApprover(approver: Approver, masking: Masking): Approver {
  return { decide: (request, signal) => approver.decide(masking.value(request.root, request), signal) };
}
