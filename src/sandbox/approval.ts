/** How much a person must agree to an operation, from the loosest to the strictest. */
export const CONSENTS = ["pre_approved", "ask", "blocked"] as const;
export type Consent = (typeof CONSENTS)[number];

/**
 * Who decides about a request that no rule of the project decides, one row for each mode. The file format, `--approve`,
 * `corral explain` and the table in docs/formats/approvals.md are derived from it; a new mode is a row here, and its approver.
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
      "approved, except grants and pushes, which only a rule approves here, and what programs of the host would execute",
  },
  auto_deny: { decision: "denied", meaning: "denied" },
} as const satisfies Readonly<
  Record<string, { readonly decision: "asked" | "approved" | "denied"; readonly meaning: string }>
>;

export type ApprovalMode = keyof typeof APPROVAL_MODES;
export const APPROVAL_MODE_NAMES = Object.keys(APPROVAL_MODES) as readonly ApprovalMode[];

/**
 * Who else may answer in the mode `interactive`. `shared`: questions can also be decided in the inbox; `wait`: so can those that
 * no user can answer here; `closed`: only where they come up.
 */
export const INBOX_MODE_NAMES = ["shared", "wait", "closed"] as const;
export type InboxMode = (typeof INBOX_MODE_NAMES)[number];

/** Everything that may need an approval. */
export const APPROVAL_OPERATIONS = [
  "read",
  "write",
  "delete",
  "call",
  "exec",
  "grant_read",
  "grant_write",
  "grant_network",
  "push",
] as const;

/**
 * What a mount may need consent for, one row for each, with the consent of a mount that says nothing of it. The file format,
 * derivation and `explain` are derived from it.
 */
export const CONSENT_ROWS = {
  read: { absent: "pre_approved", meaning: "show it to a worker at all, in its container and to its tools" },
  write: { absent: "ask", meaning: "create or change a file" },
  delete: { absent: "ask", meaning: "delete or move a file away" },
  call: { absent: "pre_approved", meaning: "call another worker while seeing the mount" },
} as const satisfies Readonly<Record<string, { readonly absent: Consent; readonly meaning: string }>>;

export type Operation = keyof typeof CONSENT_ROWS;
export const OPERATIONS = Object.keys(CONSENT_ROWS) as readonly Operation[];

/** A path on which a program outside of any cell acts by itself, and the reason in words: it is asked for apart. */
export interface HostExecuted {
  /** Virtual. */
  readonly path: string;
  /** `git on this machine would run this`. */
  readonly why: string;
}

/** The operations that change a mount. */
export const CHANGES = ["write", "delete"] as const;
export type ChangeOperation = (typeof CHANGES)[number];

/**
 * Consent for each kind of operation. Apart from the mode: a mount may be `rw` and still ask for every write. Absent `read`
 * and `call` are pre-approved.
 */
export interface ApprovalRules {
  readonly read?: Consent;
  readonly write: Consent;
  readonly delete: Consent;
  readonly call?: Consent;
}

/** The consent of a mount that declares none. */
export const ASK: ApprovalRules = { write: "ask", delete: "ask" };

/** What a mount says of an operation. */
export function consentOf(approval: ApprovalRules | undefined, operation: Operation): Consent {
  return approval?.[operation] ?? CONSENT_ROWS[operation].absent;
}

export function isLooser(asked: Consent, has: Consent): boolean {
  return CONSENTS.indexOf(asked) < CONSENTS.indexOf(has);
}

export function strictest(...consents: readonly Consent[]): Consent {
  return consents.reduce((worst, one) => (isLooser(worst, one) ? one : worst), "pre_approved");
}

/** The stricter of each operation. */
export function meetApproval(a: ApprovalRules, b: ApprovalRules): ApprovalRules {
  const met = (operation: Operation) => strictest(consentOf(a, operation), consentOf(b, operation));
  return { ...strictOf({ read: met("read"), call: met("call") }), write: met("write"), delete: met("delete") };
}

/** Only what is stricter than a mount that says nothing. */
export function strictOf({ read, call }: Pick<ApprovalRules, "read" | "call">): Pick<ApprovalRules, "read" | "call"> {
  return {
    ...(read === undefined || read === "pre_approved" ? {} : { read }),
    ...(call === undefined || call === "pre_approved" ? {} : { call }),
  };
}
