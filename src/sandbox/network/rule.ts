/** Network access: none, all of it through the Engine's bridge, or only what these rules allow. */
export type Network = boolean | AllowedNetwork;

export interface AllowedNetwork {
  /** Canonical: sorted, without a rule that another one includes. In a derived sandbox empty only beside `dynamic`. */
  readonly allow: readonly NetworkRule[];
  /** Absent: only the fixed bounds of one cell. A call's traffic counts for its callers too. */
  readonly limits?: NetworkLimits;
  /** Hosts that a running worker may ask for. Absent: none. */
  readonly dynamic?: DynamicNetwork;
}

/**
 * One line of an allow list. With only `to` and `addresses` it is a _tunnel_: bytes, and TLS from end to end. With `methods`,
 * `paths`, `set`, `without`, `artifacts` or `tls` it is _looked into_: plain HTTP inside of the cell, and each request is judged.
 */
export interface NetworkRule {
  /** `example.org:443`, `*.example.org:443`, `[2001:db8::1]:443` or `example.org:*`; lower case. */
  readonly to: string;
  /** Upper case, sorted. Absent: every method. */
  readonly methods?: readonly string[];
  /** `/repos/acme/**`: `*` is one segment, a final `**` is everything below. Sorted. Absent: every path. */
  readonly paths?: readonly string[];
  /** Headers that Corral sets on each request, by their lower-case names; a cell never sees a value. */
  readonly set?: Readonly<Record<string, { readonly secret: string }>>;
  /**
   * Headers that are never sent, lower case, sorted. Only derived: a caller's rule sets them, and this one does not. If the cell
   * sent its own, it would use another account than its caller can.
   */
  readonly without?: readonly string[];
  /** The only addresses that may be dialled, as CIDR. Absent: every public address. */
  readonly addresses?: readonly string[];
  /** `false`: the host itself speaks plain HTTP. Absent: TLS, except on port 80. */
  readonly tls?: false;
  /** The preset that it comes from. The cell's environment points the tools of this kind at the host. */
  readonly packages?: PackageSource;
  /** Only these files, with these contents, from lock files. Sorted by path. Absent: no such bound. */
  readonly artifacts?: readonly Artifact[];
}

export const PACKAGE_KINDS = ["npm", "pypi", "debian", "crates", "go"] as const;
export type PackageKind = (typeof PACKAGE_KINDS)[number];

/** The part that a host has in a preset. */
export interface PackageSource {
  readonly kind: PackageKind;
  /**
   * What the tools in the cell are pointed at, each in their own words (see package-environment.ts). Empty for a host from
   * which they only download, because another one names it.
   */
  readonly use: readonly string[];
}

/** One file that a lock file names, or files of which only the contents are known. */
export interface Artifact {
  /** The path of the request, without a query. It may have `*` and a final `**` as in `paths`. */
  readonly path: string;
  /** `sha512-BASE64`, `sha384-BASE64` or `sha256-BASE64`, as in Subresource Integrity. Sorted. Any of them must match. */
  readonly digests: readonly string[];
}

/** Bytes are those of bodies and tunnels in one direction. */
export interface NetworkLimits {
  readonly uploadBytes?: number;
  readonly downloadBytes?: number;
  readonly requests?: number;
  /** At the same time. */
  readonly connections?: number;
}

export interface DynamicNetwork {
  /** Each `host:port`, `*.host:port` or `host:*`. */
  readonly within: readonly string[];
  /** The most hosts that one run may be granted. */
  readonly max: number;
}

/** True if Corral reads the requests to this host. */
export function isLookedInto({ methods, paths, set, without, tls, artifacts }: Looked): boolean {
  return [methods, paths, set, without, tls, artifacts].some((bound) => bound !== undefined);
}

/** What a program in the cell writes to reach a rule that is looked into: `http://NAME/`. Null for a tunnel. */
export function urlInside(rule: Pick<NetworkRule, "to"> & Looked): string | null {
  return isLookedInto(rule) ? `http://${rule.to.replace(/:(443|80)$/, "")}/` : null;
}

/** A rule, or what is shown of it. */
type Looked = { readonly [Term in "methods" | "paths" | "set" | "without" | "tls" | "artifacts"]?: unknown };
