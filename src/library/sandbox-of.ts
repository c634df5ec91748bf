import { isAbsolute, normalize } from "node:path/posix";
import { mountNameFault } from "../declarations/terms/names.ts";
import { mountFromRoot, mountsFromPaths, type NamedPlace, projectSandbox, type RootPlace } from "../sandbox/declare.ts";
import { SandboxPermissionEscalationError } from "../sandbox/escalation.ts";
import { everyLimit, type Limits } from "../sandbox/limits.ts";
import type { Mount } from "../sandbox/mount.ts";
import type { Network } from "../sandbox/network.ts";
import { BASELINE, type Policy } from "../sandbox/policy.ts";
import { FileSandbox } from "./file-sandbox.ts";

interface Besides {
  /** Absent: none. */
  readonly network?: Network;
  /** Absent, whole or in part: not limited. */
  readonly limits?: Limits;
  /** Absent: one without ceilings, for questions about files. A plan needs one of `loadPolicy`. */
  readonly policy?: Policy;
}

/** A named directory of the namespace, or a single file. */
export type MountOf = Omit<NamedPlace, "name">;

/** Host directories by the names under which they appear (`data` at `/data`), or one of them as `/`. */
export type SandboxDeclaration =
  | (Besides & { readonly mounts: Readonly<Record<string, MountOf>>; readonly root?: never })
  | (Besides & { readonly root: RootPlace; readonly mounts?: never });

/**
 * A sandbox out of nothing but data: no project, no disk. Host paths are taken as they are, so they must be absolute, and
 * free of links for what is to be mounted.
 *
 * @throws RangeError for a name or a host path that cannot be one; SandboxPermissionEscalationError where network or limits are
 *   beyond the policy.
 */
export function sandboxOf(declaration: SandboxDeclaration): FileSandbox {
  const { network, limits, policy = WITHOUT_CEILINGS } = declaration;
  const derivation = projectSandbox(
    {
      mounts: mountsOf(declaration),
      rooted: declaration.root !== undefined,
      ...(network === undefined ? {} : { network }),
      ...(limits === undefined ? {} : { limits }),
    },
    policy,
  );
  if (!derivation.ok) throw new SandboxPermissionEscalationError(derivation.violations);
  return new FileSandbox(derivation.sandbox);
}

function mountsOf({ root, mounts }: SandboxDeclaration): Mount[] {
  if (root !== undefined && mounts !== undefined) throw new RangeError("give either `root` or `mounts`, not both");
  if (root !== undefined) return mountFromRoot({ ...root, host: hostOf("/", root.host) });
  return mountsFromPaths(
    Object.entries(mounts).map(([name, place]) => {
      const fault = mountNameFault(name);
      if (fault !== null) throw new RangeError(`the mount ${JSON.stringify(name)} ${fault}`);
      return { ...place, name, host: hostOf(name, place.host) };
    }),
  );
}

function hostOf(name: string, host: string): string {
  if (!isAbsolute(host)) throw new RangeError(`the host path of ${name} must be absolute, and is ${host}`);
  return host === "/" ? host : normalize(host).replace(/\/$/, "");
}

const LARGEST = everyLimit(() => Number.MAX_SAFE_INTEGER);

/** Every line of hardening at its strictest: what is derived from it can be no weaker. */
const WITHOUT_CEILINGS: Policy = {
  name: "none",
  description: "No policy: for questions about files alone",
  hardening: BASELINE,
  network: true,
  maxLimits: LARGEST,
  defaultLimits: LARGEST,
  reuse: "fresh",
  tmpBytes: 0,
  homeBytes: 0,
  nofile: 0,
};
