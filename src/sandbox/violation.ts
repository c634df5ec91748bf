import type { Consent, Operation } from "./approval.ts";
import type { LimitName } from "./limits.ts";
import type { Mount } from "./mount.ts";
import {
  type Network,
  type NetworkExcess,
  type ShownNetwork,
  type ShownRule,
  shownNetwork,
  shownRule,
} from "./network/rule.ts";

/**
 * One refused thing: a code and data. Only `wording.ts` has the text.
 *
 * `by` is the ancestor that took the thing away ("project" if it was never granted). Paths are virtual.
 */
export type Violation = Refusal & {
  /** The name of the worker's own path that asks for it, if it is one. */
  readonly own?: string;
};

/** A directory that a project gives, and on which terms. */
export interface GivenPlace extends Pick<Mount, "path" | "mode" | "suffixes" | "maxFileBytes"> {}

type Refusal =
  /** A zone or path that the caller does not have. `valid`: what it has. */
  | {
      readonly code: "MOUNT_NOT_AVAILABLE";
      readonly asked: string;
      readonly by: string;
      readonly valid: readonly string[];
    }
  /** A path of a worker's own that is in no directory of its project. `valid`: what the project gives. */
  | { readonly code: "OWN_PATH_OUTSIDE"; readonly asked: string; readonly valid: readonly GivenPlace[] }
  /** An allowlist entry outside what the caller can read. */
  | {
      readonly code: "PATH_NOT_AVAILABLE";
      readonly asked: string;
      readonly by: string;
      readonly valid: readonly string[];
    }
  /** Writing to a path that is read-only for the caller. `valid`: the caller's writable paths. */
  | {
      readonly code: "WRITE_NOT_AVAILABLE";
      readonly asked: string;
      readonly has: "ro" | "rw" | "none";
      readonly by: string;
      readonly valid: readonly string[];
    }
  /** `readonly: false` under a read-only parent. */
  | { readonly code: "READONLY_ESCALATION"; readonly by: string }
  /** A working directory that the worker itself does not see. `valid`: what it sees. */
  | { readonly code: "WORKING_DIR_NOT_AVAILABLE"; readonly asked: string; readonly valid: readonly string[] }
  | {
      readonly code: "APPROVAL_LOOSER";
      readonly path: string;
      readonly operation: Operation;
      readonly asked: Consent;
      readonly has: Consent;
      readonly by: string;
    }
  /** One for each ancestor that took something of it away. `exceeding`: what of `asked` is more than `has`, and in which term. */
  | {
      readonly code: "NETWORK_NOT_AVAILABLE";
      readonly asked: Network;
      readonly has: Network;
      readonly exceeding: readonly NetworkExcess[];
      readonly by: string;
    }
  /** A line of a worker's network from which no rules can be made, `packages` or `lockfiles.0`. */
  | { readonly code: "NETWORK_NOT_RESOLVED"; readonly at: string; readonly reason: string }
  /** A secret that the caller does not have inside. `valid`: those that it has. */
  | {
      readonly code: "SECRET_NOT_AVAILABLE";
      readonly asked: string;
      readonly by: string;
      readonly valid: readonly string[];
    }
  /** A secret whose value cannot be read, or is not fit for a cell. `reason` holds no part of it. */
  | { readonly code: "SECRET_NOT_READ"; readonly secret: string; readonly reason: string }
  /** A cell that cannot hold secrets. */
  | { readonly code: "SECRETS_NOT_ENFORCEABLE"; readonly reason: string }
  /** A worker asks to write the root file system of its cell, and its caller or a policy does not allow that. */
  | { readonly code: "ROOT_NOT_WRITABLE"; readonly by: string }
  /** A cell that cannot have a writable root within its disk limit. */
  | { readonly code: "ROOT_NOT_ENFORCEABLE"; readonly reason: string }
  | {
      readonly code: "LIMIT_TOO_LARGE";
      readonly limit: LimitName;
      readonly asked: number;
      readonly has: number;
      readonly by: string;
    }
  | {
      readonly code: "POLICY_WEAKER";
      readonly asked: string;
      readonly has: string;
      readonly lines: readonly string[];
      readonly by: string;
    }
  | {
      readonly code: "SUFFIXES_WIDER";
      readonly path: string;
      readonly asked: readonly string[];
      readonly has: readonly string[];
      readonly by: string;
    }
  | {
      readonly code: "FILE_SIZE_LARGER";
      readonly path: string;
      readonly asked: number;
      readonly has: number;
      readonly by: string;
    }
  /** Calls. */
  | { readonly code: "CALL_NOT_LISTED"; readonly asked: string; readonly valid: readonly string[] }
  | { readonly code: "CALL_CYCLE"; readonly path: readonly string[] }
  | { readonly code: "CALL_TOO_DEEP"; readonly path: readonly string[]; readonly max: number }
  | { readonly code: "CALL_LIMIT"; readonly max: number }
  /** What cannot run beside a worker, and why. */
  | { readonly code: "SERVICE_REFUSED"; readonly service: string; readonly reason: string }
  /** It was started, and did not become ready. `printed`: its last lines, as it printed them; none: it printed nothing. */
  | {
      readonly code: "SERVICE_NOT_READY";
      readonly service: string;
      readonly reason: string;
      readonly printed: readonly string[];
    }
  /** Consent to call while a mount is seen. `reason`: why it was not given; null: it is blocked. */
  | {
      readonly code: "CALL_NOT_APPROVED";
      readonly asked: string;
      readonly paths: readonly string[];
      readonly reason: string | null;
    }
  /** A command that would see a directory whose reading was not agreed to. */
  | { readonly code: "READ_NOT_APPROVED"; readonly path: string; readonly reason: string }
  | { readonly code: "WORKER_UNKNOWN"; readonly asked: string; readonly valid: readonly string[] }
  | {
      readonly code: "ATTACHMENT_REFUSED";
      readonly path: string;
      readonly reason: string;
      readonly valid: readonly string[];
    }
  /** Changes of a run that were not applied, with or without consent. */
  | { readonly code: "CHANGE_REFUSED"; readonly path: string; readonly reason: string }
  | { readonly code: "CHANGE_CONFLICT"; readonly path: string; readonly reason: string }
  | { readonly code: "CHANGES_NOT_TAKEN"; readonly reason: string }
  /** Planning: what a cell cannot express or enforce. */
  | {
      readonly code: "MOUNT_SOURCE_REFUSED";
      readonly path: string;
      readonly reason: string;
      /** True for a file that was attached, by the path that its caller wrote. */
      readonly attached?: true;
    }
  | {
      readonly code: "MOUNT_RESERVED";
      readonly path: string;
      /**
       * Absent: a system directory. Else the image has a volume inside of it, it is inside of an unrelated mount, the worker's
       * `environment` is there, or too many folders are between mounts and those around them.
       */
      readonly because?: "volume" | "nesting" | "environment" | "depth";
    }
  /** The working directory does not exist, or the worker may not enter it. */
  | { readonly code: "WORKING_DIR_MISSING"; readonly path: string }
  | { readonly code: "NETWORK_NOT_ENFORCEABLE"; readonly reason: string }
  | { readonly code: "USER_NOT_ALLOWED"; readonly reason: string }
  /**
   * The image does not have the worker's command. `searched`: the PATH, for a name without a slash; `interpreter`: the command is a script, and
   * what its first line names is missing.
   */
  | {
      readonly code: "COMMAND_NOT_FOUND";
      readonly command: string;
      readonly image: string;
      readonly searched?: string;
      readonly interpreter?: string;
    }
  /** The worker's own rules for its attachments and its input. */
  | { readonly code: "ATTACHMENTS_NOT_TAKEN"; readonly worker: string; readonly reason: string }
  | { readonly code: "INPUT_NOT_VALID"; readonly worker: string; readonly reason: string }
  /** It is only for sessions. */
  | { readonly code: "NOTHING_TO_RUN"; readonly worker: string }
  | { readonly code: "IMAGE_MISSING"; readonly image: string }
  /** An image or an environment of the worker's own. `get`: the command that makes it. */
  | { readonly code: "IMAGE_NOT_MADE"; readonly image: string; readonly reason: string; readonly get?: string }
  /** An image of which no cell is made. */
  | { readonly code: "IMAGE_REFUSED"; readonly image: string; readonly reason: string }
  | { readonly code: "ENFORCEMENT_MISSING"; readonly missing: readonly string[] };

export type ViolationCode = Violation["code"];

type OfNetwork = Extract<Violation, { readonly code: "NETWORK_NOT_AVAILABLE" }>;
type OfRule = Extract<NetworkExcess, { readonly kind: "rule" }>;

type ShownExcess = Exclude<NetworkExcess, OfRule> | (Omit<OfRule, "rule"> & { readonly rule: ShownRule });

/** A violation as people and records see it: files of lock files as a number. */
export type ShownViolation =
  | Exclude<Violation, OfNetwork>
  | (Omit<OfNetwork, "asked" | "has" | "exceeding"> & {
      readonly asked: ShownNetwork;
      readonly has: ShownNetwork;
      readonly exceeding: readonly ShownExcess[];
    });

export function shownViolation(violation: Violation): ShownViolation {
  if (violation.code !== "NETWORK_NOT_AVAILABLE") return violation;
  const { asked, has, exceeding } = violation;
  return { ...violation, asked: shownNetwork(asked), has: shownNetwork(has), exceeding: exceeding.map(shownExcess) };
}

function shownExcess(excess: NetworkExcess): ShownExcess {
  return excess.kind === "rule" ? { ...excess, rule: shownRule(excess.rule) } : excess;
}
