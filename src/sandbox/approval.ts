/** How much a person must agree to an operation, from the loosest to the strictest. */
export const CONSENTS = ["pre_approved", "ask", "blocked"] as const;
export type Consent = (typeof CONSENTS)[number];

/**
 * Who decides about a request that no rule of the project decides, one row for each mode. The file format, `--approve`,
 * `corral explain` and the table in docs/formats.md are derived from it; a new mode is a row here, and its approver.
 */
export const APPROVAL_MODES = {
  interactive: {
    decision: "asked",
    meaning:
      "asks the user at the terminal, or the program that opened Corral (`approver`); without either it is `denied`",
  },
  approve_all: {
    decision: "approved",
    meaning:
      "approved, except grants and pushes: these go beyond what the project declared, so here only a rule approves them",
  },
  auto_deny: { decision: "denied", meaning: "denied" },
} as const satisfies Readonly<
  Record<string, { readonly decision: "asked" | "approved" | "denied"; readonly meaning: string }>
>;

export type ApprovalMode = keyof typeof APPROVAL_MODES;
export const APPROVAL_MODE_NAMES = Object.keys(APPROVAL_MODES) as readonly ApprovalMode[];

/** Everything that may need an approval. */
export const APPROVAL_OPERATIONS = ["write", "delete", "exec", "grant_read", "grant_write", "push"] as const;

/** Consent for each kind of change. Apart from the mode: a mount may be `rw` and still ask for every write. */
export interface Approval {
  readonly write: Consent;
  readonly delete: Consent;
}

export const OPERATIONS = ["write", "delete"] as const;
export type Operation = (typeof OPERATIONS)[number];

/** The consent of a mount that declares none. */
export const ASK: Approval = { write: "ask", delete: "ask" };

export function isLooser(asked: Consent, has: Consent): boolean {
  return CONSENTS.indexOf(asked) < CONSENTS.indexOf(has);
}

/** The stricter of each operation. */
export function meetApproval(a: Approval, b: Approval): Approval {
  return {
    write: isLooser(a.write, b.write) ? b.write : a.write,
    delete: isLooser(a.delete, b.delete) ? b.delete : a.delete,
  };
}
