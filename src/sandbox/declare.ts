import { canonicalMounts } from "./access.ts";
import type { Narrowing } from "./ancestry.ts";
import type { Approval } from "./approval.ts";
import { withinCeilings } from "./ceilings.ts";
import type { Limits } from "./limits.ts";
import { canonicalSuffixes, type Mode, type Mount } from "./mount.ts";
import { canonicalNetwork } from "./network/network.ts";
import type { Network } from "./network/rule.ts";
import type { Policy } from "./policy.ts";
import type { Sandbox } from "./sandbox.ts";
import { projectSecrets } from "./secret-needs.ts";
import { stagingOf } from "./staging.ts";
import type { Violation } from "./violation.ts";
import { ROOT, type VirtualPath } from "./virtual-path.ts";
import { withheldApart } from "./withheld.ts";

/** What a project declares, whichever of the three forms it used; host paths are already resolved. */
export interface ProjectDeclaration {
  readonly mounts: readonly Mount[];
  /** True for the root form. */
  readonly rooted: boolean;
  /** Absent: none. */
  readonly network?: Network;
  /** Names of the secrets that its workers may have inside of their cells. Absent: none. */
  readonly secrets?: readonly string[];
  readonly limits?: Limits;
  readonly workingDir?: VirtualPath;
  /** True: every mount is read-only. */
  readonly readonly?: boolean;
  /** True: a worker that is run by itself may bring host directories that the project does not give. */
  readonly ownPaths?: boolean;
}

interface Constraints {
  readonly suffixes?: readonly string[];
  readonly maxFileBytes?: number;
  readonly approval?: Approval;
  readonly stage?: true;
  readonly discard?: true;
}

/** One entry of the zones form or of the paths form. */
export interface NamedPlace extends Constraints {
  readonly name: string;
  /** Its place in the namespace; absent: `/NAME`. */
  readonly at?: VirtualPath | undefined;
  /** Absolute host path with no symbolic link in it. */
  readonly host: string;
  /** Absent: `ro`. */
  readonly mode?: Mode;
}

/** The root form: one directory, which appears as `/`. */
export interface RootPlace extends Constraints {
  readonly host: string;
  /** Absent: false. */
  readonly readonly?: boolean;
}

/**
 * The root of every chain: what a project gives, as far as its policy allows it. What the policy takes away is a narrowing: a
 * worker that asks for it is refused, and no other.
 */
export function projectSandbox(declaration: ProjectDeclaration, policy: Policy): Sandbox {
  const asked = { network: declaration.network ?? false, limits: declaration.limits ?? {} };
  const { network, limits, violations } = withinCeilings(asked, policy);
  const secrets = projectSecrets(declaration.secrets ?? [], policy);
  const mounts = declaration.mounts.map((mount) => (declaration.readonly ? { ...mount, mode: "ro" as const } : mount));
  return {
    chain: ["project"],
    ...withheldApart(canonicalMounts(mounts)),
    workingDir: declaration.workingDir ?? ROOT,
    network,
    ...secrets.given,
    limits,
    policy,
    narrowings: [...violations.flatMap((violation) => narrowingOf(violation, network)), ...secrets.narrowings],
    rooted: declaration.rooted,
    ...(declaration.ownPaths ? { ownPaths: true as const } : {}),
  };
}

function narrowingOf(violation: Violation, network: Network): Narrowing[] {
  if (violation.code === "NETWORK_NOT_AVAILABLE")
    return [{ by: violation.by, kind: "network", from: canonicalNetwork(violation.asked), to: network }];
  if (violation.code !== "LIMIT_TOO_LARGE") return [];
  const { by, limit, asked, has } = violation;
  return [{ by, kind: "limit", limit, from: asked, to: has }];
}

export function mountsFromZones(zones: readonly NamedPlace[]): Mount[] {
  return zones.map(namedMount);
}

export function mountsFromPaths(paths: readonly NamedPlace[]): Mount[] {
  return paths.map(namedMount);
}

export function mountFromRoot(root: RootPlace): Mount[] {
  return [{ name: "/", path: ROOT, host: root.host, mode: root.readonly ? "ro" : "rw", ...constraintsOf(root) }];
}

function namedMount(place: NamedPlace): Mount {
  const { name, at, host, mode = "ro" } = place;
  return { name, path: at ?? (`/${name}` as VirtualPath), host, mode, ...constraintsOf(place) };
}

function constraintsOf({ suffixes, maxFileBytes, approval, stage, discard }: Constraints): Constraints {
  return {
    ...(suffixes === undefined ? {} : { suffixes: canonicalSuffixes(suffixes) }),
    ...(maxFileBytes === undefined ? {} : { maxFileBytes }),
    ...(approval === undefined ? {} : { approval }),
    ...stagingOf({ stage, discard }),
  };
}
