import type { Narrowing } from "./ancestry.ts";
import type { Limits } from "./limits.ts";
import type { Mount } from "./mount.ts";
import type { Network } from "./network/rule.ts";
import type { Policy } from "./policy.ts";
import type { Violation } from "./violation.ts";
import type { VirtualPath } from "./virtual-path.ts";

/**
 * The effective permission of one run: immutable, serialisable, pure data. A grant at run time makes a new one.
 *
 * `mounts` is sorted by path, parents before their children; no two have the same path.
 */
export interface Sandbox {
  /** Who this sandbox belongs to, root first: `["project", "triage", "extract"]`. */
  readonly chain: readonly string[];
  readonly mounts: readonly Mount[];
  /** Mounts whose reading needs the user's consent, which is not given yet. Nothing shows them. Absent: none. */
  readonly withheld?: readonly Mount[];
  readonly workingDir: VirtualPath;
  readonly network: Network;
  /** Names of the secrets whose values are files in its cell, sorted. Absent: none. */
  readonly secrets?: readonly string[];
  readonly limits: Limits;
  readonly policy: Policy;
  /** What each derivation took away and what was granted since, oldest first. Violations and `explain` name the cause from it. */
  readonly narrowings: readonly Narrowing[];
  /** True if `/` of the namespace is itself a mount (the root form): a cell then shows the namespace below `/project`. */
  readonly rooted: boolean;
  /** Only in a project's own sandbox: its workers may bring host directories that it does not give. */
  readonly ownPaths?: true;
}

/** The result of a declaration or a derivation: a sandbox, or all violations. */
export type Derivation =
  | { readonly ok: true; readonly sandbox: Sandbox }
  | { readonly ok: false; readonly violations: readonly Violation[] };
