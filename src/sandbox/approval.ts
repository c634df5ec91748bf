/** How much a person must agree to an operation, from the loosest to the strictest. */
export type Consent = "pre_approved" | "ask" | "blocked";

/** Consent for each kind of change. Apart from the mode: a mount may be `rw` and still ask for every write. */
export interface Approval {
  readonly write: Consent;
  readonly delete: Consent;
}

export const OPERATIONS = ["write", "delete"] as const;
export type Operation = (typeof OPERATIONS)[number];

/** The consent of a mount that declares none. */
export const ASK: Approval = { write: "ask", delete: "ask" };

const STRICTNESS: Readonly<Record<Consent, number>> = { pre_approved: 0, ask: 1, blocked: 2 };

export function isLooser(asked: Consent, has: Consent): boolean {
  return STRICTNESS[asked] < STRICTNESS[has];
}

/** The stricter of each operation. */
export function meetApproval(a: Approval, b: Approval): Approval {
  return {
    write: isLooser(a.write, b.write) ? b.write : a.write,
    delete: isLooser(a.delete, b.delete) ? b.delete : a.delete,
  };
}
