import { whoTookConsent } from "./ancestry.ts";
import { ASK, isLooser, meetApproval, OPERATIONS } from "./approval.ts";
import type { Approval, Mode, Mount } from "./mount.ts";
import type { Sandbox } from "./sandbox.ts";
import type { Violation } from "./violation.ts";

/** The files that a derivation opens, and what it refuses. Mounts may still say things twice; `derive` makes them canonical. */
export interface Granted {
  readonly mounts: readonly GrantedMount[];
  readonly violations: readonly Violation[];
}

export interface GrantedMount {
  readonly mount: Mount;
  /** What the parent has there; of a mount that the worker brought itself, the most that it could have been. */
  readonly source: Mount;
}

/** What a worker says about consent: for one mount, and for all that it does not name. */
export interface ConsentAsked {
  readonly own: Approval | undefined;
  readonly blanket: Approval | undefined;
}

export interface Consented {
  readonly approval: Approval;
  readonly violations: readonly Violation[];
}

/**
 * The consent that a child's mount needs: never looser than its source's. What the worker says of this very mount is
 * held against it; what it says of all its mounts, only where consent can matter, since a read-only mount asks for none.
 */
export function consentFor(parent: Sandbox, source: Mount, mode: Mode, asked: ConsentAsked): Consented {
  const said = asked.own ?? asked.blanket;
  const has = source.approval;
  if (has === undefined) return { approval: said ?? ASK, violations: [] };
  if (said === undefined) return { approval: has, violations: [] };

  const held = asked.own !== undefined || mode === "rw";
  const looser = held ? OPERATIONS.filter((operation) => isLooser(said[operation], has[operation])) : [];
  const violations = looser.map((operation): Violation => {
    const by = whoTookConsent(parent, source.path, operation);
    return { code: "APPROVAL_LOOSER", path: source.path, operation, asked: said[operation], has: has[operation], by };
  });
  return { approval: meetApproval(has, said), violations };
}
