import { canonicalMounts, governingMount } from "./access.ts";
import type { Narrowing } from "./ancestry.ts";
import { type ApprovalRules, consentOf } from "./approval.ts";
import type { Limits } from "./limits.ts";
import type { Mode, Mount } from "./mount.ts";
import { type AllowedNetwork, lesserNetwork, type Network, type NetworkRule } from "./network/rule.ts";
import type { Policy } from "./policy.ts";
import type { Violation } from "./violation.ts";
import { covers, type VirtualPath } from "./virtual-path.ts";

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
  /**
   * Its network with the hosts that only single commands have, by a grant of the worker's shell rules. Its cells are planned for all of it. Workers that it
   * calls, its tools and its other commands have {@link Sandbox.network}. Absent: the same.
   */
  readonly commandNetwork?: AllowedNetwork;
  /** Names of the secrets whose values are files in its cell, sorted. Absent: none. */
  readonly secrets?: readonly string[];
  /** It may write the root file system of its own cell. In a project's own sandbox: its workers may ask for that. Absent: read-only. */
  readonly writableRoot?: true;
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

/** The sandbox of a command that was given only some hosts of its run's network. A host that was revoked since is none of them. */
export function commandSandbox(sandbox: Sandbox, only: readonly string[]): Sandbox {
  const { chain, narrowings, network: from } = sandbox;
  const lesser = lesserNetwork(from, only);
  const network = lesser.ok && lesser.network;
  if (JSON.stringify(from) === JSON.stringify(network)) return sandbox;
  const taken = { by: `${chain.at(-1)} (exec)`, kind: "network", from, to: network } as const;
  return { ...sandbox, network, narrowings: [...narrowings, taken] };
}

/** The rules that a command has beyond its run's network, as its shell rule says. */
export function grantedRules(
  { commandNetwork }: Pick<Sandbox, "commandNetwork">,
  granted: true | readonly string[] | undefined,
): readonly NetworkRule[] {
  if (granted === undefined || commandNetwork === undefined) return [];
  return commandNetwork.allow.filter(({ to }) => granted === true || granted.includes(to));
}

/** The sandbox of a command that its shell rule grants more hosts. */
export function grantedSandbox(sandbox: Sandbox, granted: true | readonly string[] | undefined): Sandbox {
  const rules = grantedRules(sandbox, granted);
  const { network } = sandbox;
  return rules.length === 0 || network === true ? sandbox : { ...sandbox, network: networkWith(network, rules) };
}

/** A network with further rules, as they are. */
export function networkWith(network: AllowedNetwork | false, rules: readonly NetworkRule[]): AllowedNetwork {
  const had = network === false ? { allow: [] } : network;
  return { ...had, allow: [...had.allow, ...rules] };
}

/** Keeps the hosts of grants for the commands that are granted them. `granted`: of each shell rule that grants some. */
export function keptForCommands(sandbox: Sandbox, granted: readonly (true | readonly string[])[]): Sandbox {
  const { network } = sandbox;
  if (granted.length === 0 || typeof network === "boolean") return sandbox;
  const isKept = ({ to }: NetworkRule): boolean => granted.some((hosts) => hosts === true || hosts.includes(to));
  return {
    ...sandbox,
    network: { ...network, allow: network.allow.filter((rule) => !isKept(rule)) },
    commandNetwork: network,
  };
}

type Withholding = Pick<Sandbox, "mounts" | "withheld">;

/**
 * A mount whose reading needs consent is apart until the user agreed: it is in no list from which tools, cells and views are
 * made. A mount around it is apart too, because it would show it.
 */
export function withheldApart(all: readonly Mount[]): Withholding {
  const asks = all.filter(({ approval }) => consentOf(approval, "read") !== "pre_approved");
  if (asks.length === 0) return { mounts: all };
  const isApart = ({ path }: Mount): boolean => asks.some((mount) => covers(path, mount.path));
  return { mounts: all.filter((mount) => !isApart(mount)), withheld: all.filter(isApart) };
}

/** The sandbox with everything that it declares, for deriving and judging. Nothing may be opened from it. */
export function declaredBy<Declared extends Withholding>(sandbox: Declared): Declared {
  const { mounts, withheld = [] } = sandbox;
  return withheld.length === 0 ? sandbox : { ...sandbox, mounts: canonicalMounts([...mounts, ...withheld]) };
}

/** The withheld mount that says what `path` allows, if it is one. */
export function withheldAt(sandbox: Withholding, path: VirtualPath): Mount | undefined {
  const mount = governingMount(declaredBy(sandbox), path);
  return mount !== undefined && sandbox.withheld?.includes(mount) ? mount : undefined;
}

/** Where the user can still agree to reading, for messages. What is blocked is not among it. */
export function readAfterApproval({ withheld = [] }: Pick<Sandbox, "withheld">): VirtualPath[] {
  const isBlocked = ({ path }: Mount): boolean =>
    withheld.some((mount) => covers(path, mount.path) && consentOf(mount.approval, "read") === "blocked");
  return withheld.filter((mount) => !isBlocked(mount)).map(({ path }) => path);
}

/**
 * What a worker declares, resolved: paths are virtual and normalised, an entry that was a file is already
 * replaced by its directory, host roots are absolute and contain no link, the policy's name is replaced by the policy.
 *
 * Exactly one way of asking for files: nothing, `zones`, `paths`, or the allowlists with or without `inherit`.
 */
export interface Needs {
  readonly zones?: readonly ZoneNeed[];
  readonly paths?: readonly PathNeed[];
  readonly inherit?: boolean;
  /** Absent: not declared. An empty list: nothing is allowed. */
  readonly allowRead?: readonly VirtualPath[];
  readonly allowWrite?: readonly VirtualPath[];
  readonly readonly?: boolean;
  /** For every mount of this worker: only such files, of those that it has otherwise. Absent: all of them. */
  readonly suffixes?: readonly string[];
  readonly maxFileBytes?: number;
  /** For every mount of this worker that has none of its own. */
  readonly approval?: ApprovalRules;
  /** For every mount of this worker: see {@link Mount.stage} and {@link Mount.discard}. */
  readonly stage?: true;
  readonly discard?: true;
  readonly workingDir?: VirtualPath;
  /** Absent: none. */
  readonly network?: Network;
  /** Names of secrets that it needs inside of its cell. Absent: none. */
  readonly secrets?: readonly string[];
  /** It needs to write the root file system of its cell. */
  readonly writableRoot?: true;
  /** Absent, whole or in part: the caller's. */
  readonly limits?: Limits;
  /** Absent: the caller's. */
  readonly policy?: Policy;
}

/** A mount of the project, by name. `mode` absent: `ro`. */
export interface ZoneNeed {
  readonly name: string;
  readonly mode?: Mode;
  readonly approval?: ApprovalRules;
  readonly stage?: true;
  readonly discard?: true;
}

/** A host directory that the worker itself names; as a call, only if it is inside of the caller's mounts. */
export interface PathNeed {
  readonly name: string;
  /** Its place in the namespace; absent: `/NAME`. */
  readonly at?: VirtualPath;
  /** Absolute host path with no symbolic link in it. */
  readonly host: string;
  readonly mode: Mode;
  readonly suffixes?: readonly string[];
  readonly maxFileBytes?: number;
  readonly approval?: ApprovalRules;
  readonly stage?: true;
  readonly discard?: true;
}
