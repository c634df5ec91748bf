import { addressText, parseBlock } from "./address.ts";
import { meetPatterns, patternInside } from "./path-glob.ts";

/** One listening socket in the network namespace of a cell. Its other end is Corral. */
export interface NetworkPlace {
  /** A loopback address of the cell, e.g. `127.88.1.1`. */
  readonly address: string;
  readonly port: number;
  /** The host that connections to it mean; `null`: the proxy, for which each request names its host. */
  readonly host: string | null;
}

/** Where the hosts of an allow list appear in a cell. */
export interface NetworkPlaces {
  /** Lines of `/etc/hosts`. */
  readonly names: readonly { readonly name: string; readonly address: string }[];
  readonly listeners: readonly NetworkPlace[];
}

/** The place of the HTTP proxy, for wildcards and for rules of every port. */
export const PROXY: NetworkPlace = { address: "127.88.0.1", port: 3128, host: null };

/** Beyond this many, hosts would not fit the addresses and descriptors of one cell. */
export const MAX_PLACES = 1000;

const NOWHERE: NetworkPlaces = { names: [], listeners: [] };

/**
 * Each exact name gets a loopback address of the cell, in the order of the list. What is in `known` stays where it is: names that
 * are granted to a running cell come after those that it began with. A worker that may be granted hosts has the proxy, since a
 * program can only be heard there when it asks for a host that it does not have. A rule that is looked into is at port 80
 * of its name if it is for port 443, since programs write `http://NAME/`; its port 443 is there to be refused.
 */
export function networkPlaces(network: AllowedNetwork, known: NetworkPlaces = NOWHERE): NetworkPlaces {
  const addresses = new Map(known.names.map(({ name, address }) => [name, address]));
  const listeners = new Map(known.listeners.map((place) => [keyOf(place), place]));
  if (network.dynamic !== undefined) listeners.set(keyOf(PROXY), PROXY);
  for (const rule of network.allow) {
    const target = parseTarget(rule.to);
    if (!target.ok) continue;
    const { host, wildcard, port } = target.target;
    // A file of names cannot lead from one address to another, and `localhost` is the cell's own.
    if (wildcard || port === null || isAddress(host) || host === "localhost") {
      listeners.set(keyOf(PROXY), PROXY);
      continue;
    }
    const address = addresses.get(host) ?? addressOf(addresses.size);
    addresses.set(host, address);
    for (const each of portsInside(rule, port)) {
      const place = { address, port: each, host };
      if (!listeners.has(keyOf(place))) listeners.set(keyOf(place), place);
    }
  }
  const names = [...addresses].map(([name, address]) => ({ name, address }));
  return { names, listeners: [...listeners.values()] };
}

function keyOf({ address, port }: NetworkPlace): string {
  return `${address}:${port}`;
}

/** The ports in the cell at which a rule for this port is reached. */
function portsInside(rule: NetworkRule, port: number): readonly number[] {
  return isLookedInto(rule) && port === 443 ? [80, 443] : [port];
}

/** `127.88.1.1` and on: never `.0` or `.255`. */
function addressOf(index: number): string {
  return `127.88.${1 + Math.floor(index / 250)}.${1 + (index % 250)}`;
}

/** The hosts and ports of a rule. */
export interface NetworkTarget {
  /** Lower case; an IPv6 address is in brackets. */
  readonly host: string;
  /** True for `*.host`: every host below, but not the host itself. */
  readonly wildcard: boolean;
  /** Null: every port. */
  readonly port: number | null;
}

/** Every host and port, which no rule can say. */
export const EVERYWHERE: NetworkTarget = { host: "", wildcard: true, port: null };

export type NetworkTargetParse =
  | { readonly ok: true; readonly target: NetworkTarget }
  | { readonly ok: false; readonly reason: string };

/** Reads `example.org:443`, `*.example.org:443`, `example.org:*` or `[::1]:80`. Never throws. */
export function parseTarget(raw: string): NetworkTargetParse {
  const scheme = /^([a-z][a-z0-9+.-]*):\/\/([^/?#]*)/i.exec(raw);
  if (scheme !== null) return refuse(raw, `is a URL; write ${targetOfUrl(scheme[1] ?? "", scheme[2] ?? "")}`);
  if (/[/?#@]/.test(raw)) return refuse(raw, "must be only host and port; write paths below `paths`");
  const colon = raw.lastIndexOf(":");
  if ((raw.match(/:/g)?.length ?? 0) > 1 && !raw.startsWith("["))
    return refuse(raw, "an IPv6 address must be in brackets, as in `[2001:db8::1]:443`");
  if (colon < 0 || raw.endsWith("]"))
    return refuse(raw, "a port is missing; write `host:port`, or `host:*` for every port");
  const port = raw.slice(colon + 1);
  if (port !== "*" && (!/^[1-9][0-9]{0,4}$/.test(port) || Number(port) > 65_535))
    return refuse(raw, "the port must be 1 to 65535, or `*`");
  const wildcard = raw.startsWith("*.");
  const host = canonicalHost(raw.slice(wildcard ? 2 : 0, colon));
  if (host === null || (wildcard && isAddress(host)))
    return refuse(raw, "the host must be a name, an address, or `*.` and a name");
  return { ok: true, target: { host, wildcard, port: port === "*" ? null : Number(port) } };
}

/** In lower case, without a dot at the end, an address in its one form. Null if it is no host. */
export function canonicalHost(raw: string): string | null {
  if (raw.startsWith("[")) {
    const block = /^\[[^/]+\]$/.test(raw) ? parseBlock(raw.slice(1, -1)) : null;
    return block?.bits === 128 ? `[${addressText(block)}]` : null;
  }
  const host = raw.replace(/\.$/, "").toLowerCase();
  // What ends in a number is an IPv4 address for programs, in forms such as 127.1: only the usual one is a host.
  if (/(^|\.)(0x[0-9a-f]*|[0-9]+)$/.test(host)) return host.includes("/") || parseBlock(host) === null ? null : host;
  const isName = host.split(".").every((label) => /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label));
  return isName && host.length <= 253 ? host : null;
}

/** True for an address in place of a name. */
export function isAddress(host: string): boolean {
  return host.startsWith("[") || /\.[0-9]+$/.test(host);
}

export function networkTargetText({ host, wildcard, port }: NetworkTarget): string {
  return `${wildcard ? "*." : ""}${host}:${port ?? "*"}`;
}

/** True if `outer` has every host and port that `inner` has. */
export function targetInside(inner: NetworkTarget, outer: NetworkTarget): boolean {
  return hostInside(inner, outer) && (outer.port === null || outer.port === inner.port);
}

/** True if an entry of the list (`host:port`, `*.host:port` or `host:*`) includes this host and port. */
export function isAmong(to: string, entries: readonly string[]): boolean {
  const inner = parseTarget(to);
  return entries.map(parseTarget).some((outer) => inner.ok && outer.ok && targetInside(inner.target, outer.target));
}

/** The hosts and ports of both, or null if there are none. */
export function meetTargets(a: NetworkTarget, b: NetworkTarget): NetworkTarget | null {
  const hosts = hostInside(a, b) ? a : hostInside(b, a) ? b : null;
  if (hosts === null || (a.port !== null && b.port !== null && a.port !== b.port)) return null;
  return { ...hosts, port: a.port ?? b.port };
}

function hostInside(inner: NetworkTarget, outer: NetworkTarget): boolean {
  if (outer.host === "") return true;
  if (!outer.wildcard) return !inner.wildcard && inner.host === outer.host;
  return inner.host.endsWith(`.${outer.host}`) || (inner.wildcard && inner.host === outer.host);
}

function targetOfUrl(scheme: string, authority: string): string {
  const host = authority.slice(authority.lastIndexOf("@") + 1);
  const port = scheme.toLowerCase() === "http" ? 80 : 443;
  return `\`${/:[0-9]+$/.test(host) ? host : `${host}:${port}`}\``;
}

function refuse(raw: string, reason: string): NetworkTargetParse {
  return { ok: false, reason: `${JSON.stringify(raw.slice(0, 300))}: ${reason}` };
}

/** In which term a rule asks for more: in the order in which they are compared. `tunnel`: its requests are looked into. */
export const NETWORK_TERMS = ["to", "tunnel", "tls", "methods", "paths", "artifacts", "addresses", "set"] as const;
export type NetworkTerm = (typeof NETWORK_TERMS)[number];

/** One thing in which a network asks for more than there is. */
export type NetworkExcess =
  /** `network: true`. */
  | { readonly kind: "all" }
  | { readonly kind: "rule"; readonly rule: NetworkRule; readonly term: NetworkTerm }
  | { readonly kind: "limit"; readonly limit: keyof NetworkLimits; readonly asked: number; readonly has: number }
  /** A host that a running worker may ask for. */
  | { readonly kind: "dynamic"; readonly within: string }
  | { readonly kind: "dynamicMax"; readonly asked: number; readonly has: number };

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

/** A rule as people, workers and records see it: secrets by their names, as always, and files of lock files as a number. */
export type ShownRule = Omit<NetworkRule, "artifacts" | "packages"> & {
  /** The kind of its preset. */
  readonly packages?: string;
  /** How many files it allows; absent: no such bound. */
  readonly artifacts?: number;
};

export function shownRule({ artifacts, packages, ...rule }: NetworkRule): ShownRule {
  return {
    ...rule,
    ...(packages === undefined ? {} : { packages: packages.kind }),
    ...(artifacts === undefined ? {} : { artifacts: artifacts.length }),
  };
}

/** A network as people, workers and records see it. */
export type ShownNetwork = boolean | (Omit<AllowedNetwork, "allow"> & { readonly allow: readonly ShownRule[] });

export function shownNetwork(network: Network): ShownNetwork {
  return typeof network === "boolean" ? network : { ...network, allow: network.allow.map(shownRule) };
}

/* Files of lock files. A list has thousands, so those that name one path are found by it. */

/** Sorted by path, with the digests of one path together; without files that no digest accepts. */
export function canonicalArtifacts(artifacts: readonly Artifact[]): Artifact[] {
  const byPath = new Map<string, Set<string>>();
  for (const { path, digests } of artifacts) {
    const known = byPath.get(path) ?? new Set();
    for (const digest of digests) known.add(digest);
    byPath.set(path, known);
  }
  const all = [...byPath].filter(([, digests]) => digests.size > 0);
  return all.sort(([a], [b]) => (a < b ? -1 : 1)).map(([path, digests]) => ({ path, digests: [...digests].sort() }));
}

/** The files at these paths; undefined: at every path. */
export function artifactsBelow(artifacts: readonly Artifact[], paths: readonly string[] | undefined): Artifact[] {
  if (paths === undefined) return [...artifacts];
  const { near } = indexPatterns(paths, (path) => path);
  return artifacts.flatMap(({ path, digests }) =>
    near(path).flatMap((other) => {
      const met = meetPatterns(path, other);
      return met === null ? [] : [{ path: met, digests }];
    }),
  );
}

/** Finds what may have a path in common with another. */
function indexPatterns<Each>(list: readonly Each[], pathOf: (each: Each) => string) {
  const exact = new Map(list.map((each) => [pathOf(each), each]));
  const patterns = list.filter((each) => pathOf(each).includes("*"));
  return {
    near(path: string): readonly Each[] {
      if (path.includes("*")) return list;
      const same = exact.get(path);
      return same === undefined ? patterns : [same, ...patterns];
    },
  };
}

/** Finds the files of a list that may have a path. */
export interface ArtifactIndex {
  near(path: string): readonly Artifact[];
}

export function indexArtifacts(artifacts: readonly Artifact[]): ArtifactIndex {
  return indexPatterns(artifacts, ({ path }) => path);
}

/** True if each content that `asked` accepts is accepted there. */
export function artifactInside(asked: Artifact, has: ArtifactIndex): boolean {
  const around = has.near(asked.path).filter(({ path }) => patternInside(asked.path, path));
  const accepted = new Set(around.flatMap(({ digests }) => digests));
  return asked.digests.every((digest) => accepted.has(digest));
}

/** The files of both. */
export function meetArtifacts(some: readonly Artifact[], others: ArtifactIndex): readonly Artifact[] {
  return some.flatMap((a) =>
    others.near(a.path).flatMap((b) => {
      const path = meetPatterns(a.path, b.path);
      const accepted = new Set(b.digests);
      return path === null ? [] : [{ path, digests: a.digests.filter((digest) => accepted.has(digest)) }];
    }),
  );
}

export type LesserNetwork =
  | { readonly ok: true; readonly network: AllowedNetwork | false }
  /** One of the texts, and why. */
  | { readonly ok: false; readonly to: string; readonly reason: string };

/**
 * What of a network is left if only some hosts may be reached: each rule with all that it says, for those of its hosts.
 * A host that the network does not have is refused: a caller that believes to reach it would be wrong.
 */
export function lesserNetwork(network: Network, only: readonly string[]): LesserNetwork {
  if (network === true)
    return { ok: false, to: only[0] ?? "none", reason: "it has the whole network, and no list of hosts" };
  const rules =
    typeof network === "boolean" ? [] : network.allow.map((rule) => ({ rule, parsed: parseTarget(rule.to) }));
  const left = new Map<string, AllowedNetwork["allow"][number]>();
  for (const text of only) {
    const asked = parseTarget(text);
    if (!asked.ok) return { ok: false, to: text, reason: asked.reason };
    const met = rules.flatMap(({ rule, parsed }) => {
      const both: NetworkTarget | null = parsed.ok ? meetTargets(asked.target, parsed.target) : null;
      return both === null ? [] : [{ ...rule, to: networkTargetText(both) }];
    });
    if (met.length === 0) return { ok: false, to: text, reason: "it is not one of the hosts that are allowed" };
    for (const rule of met) left.set(JSON.stringify(rule), rule);
  }
  if (typeof network === "boolean" || left.size === 0) return { ok: true, network: false };
  const { dynamic: _, ...rest } = network;
  return { ok: true, network: { ...rest, allow: [...left.values()] } };
}
