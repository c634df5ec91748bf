import type { Approval } from "../../sandbox/approval.ts";
import type { Limits } from "../../sandbox/limits.ts";
import type { Mode } from "../../sandbox/mount.ts";
import type { ZoneNeed } from "../../sandbox/needs.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { RawNetwork } from "../network/raw-network.ts";

/**
 * What a worker declares in its file: checked in form, but its paths are still text.
 *
 * `resolveNeeds` makes `Needs` of it, once the caller's mounts are known. Absence has the same meaning as there.
 */
export interface RawNeeds {
  readonly zones?: readonly ZoneNeed[];
  readonly paths?: readonly RawPathNeed[];
  readonly inherit?: boolean;
  /** Virtual paths as written: `/data/a.md`, `data/a.md`, `data:a.md`, `~/a.md`. */
  readonly allowRead?: readonly string[];
  readonly allowWrite?: readonly string[];
  readonly readonly?: boolean;
  readonly approval?: Approval;
  readonly stage?: true;
  readonly discard?: true;
  readonly workingDir?: string;
  readonly network?: RawNetwork;
  /** Names of secrets that it has inside of its cell. */
  readonly secrets?: readonly string[];
  readonly limits?: Limits;
}

export interface RawPathNeed {
  readonly name: string;
  /** Its place in the namespace; absent: `/NAME`. */
  readonly at?: VirtualPath;
  /** A host path, relative to the project. */
  readonly root: string;
  readonly mode: Mode;
  readonly suffixes?: readonly string[];
  readonly maxFileBytes?: number;
  readonly approval?: Approval;
  readonly stage?: true;
  readonly discard?: true;
}
