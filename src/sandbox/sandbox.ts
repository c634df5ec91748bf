import type { Limits } from "./limits.ts";
import type { Mount } from "./mount.ts";
import type { Network } from "./network.ts";
import type { Policy } from "./policy.ts";
import type { VirtualPath } from "./virtual-path.ts";

/**
 * The effective permission of one run: immutable, serialisable, pure data. A grant at run time makes a new one.
 *
 * `mounts` is sorted by path, parents before what stands below them; no two share a path.
 */
export interface Sandbox {
  /** Who this sandbox belongs to, root first: `["project", "triage", "extract"]`. */
  readonly chain: readonly string[];
  readonly mounts: readonly Mount[];
  readonly workingDir: VirtualPath;
  readonly network: Network;
  readonly limits: Limits;
  readonly policy: Policy;
  /** What each derivation took away, and what was granted since, oldest first; violations and `explain` name who did from it. */
  readonly narrowings: readonly Narrowing[];
  /** True where the namespace's `/` is itself a mount (the root form): a cell then shows the namespace below `/project`. */
  readonly rooted: boolean;
}

/**
 * One thing that a derivation took away, or that was granted at run time. An approval's `from` is `unset` where nobody
 * above had said.
 */
export type Narrowing =
  | {
      readonly by: string;
      readonly kind: "mount";
      readonly path: VirtualPath;
      readonly from: "ro" | "rw";
      readonly to: "none" | "ro";
    }
  | {
      readonly by: string;
      readonly kind: "approval";
      readonly path: VirtualPath;
      readonly operation: "write" | "delete";
      readonly from: string;
      readonly to: string;
    }
  | {
      readonly by: string;
      readonly kind: "constraint";
      readonly path: VirtualPath;
      readonly constraint: "suffixes" | "maxFileBytes";
      readonly from: readonly string[] | number | null;
      readonly to: readonly string[] | number;
    }
  | { readonly by: string; readonly kind: "network"; readonly from: Network; readonly to: Network }
  | {
      readonly by: string;
      readonly kind: "limit";
      readonly limit: keyof Limits;
      readonly from: number | null;
      readonly to: number;
    }
  | { readonly by: string; readonly kind: "policy"; readonly from: string; readonly to: string }
  | {
      readonly by: string;
      readonly kind: "grant";
      readonly path: VirtualPath;
      readonly from: "none" | "ro";
      readonly to: "ro" | "rw";
    };
