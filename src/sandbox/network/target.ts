import { addressText, parseBlock } from "./address.ts";

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

export function targetText({ host, wildcard, port }: NetworkTarget): string {
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
