import type { Network, NetworkRule } from "./rule.ts";

/** The hosts and ports of a rule. */
export interface NetworkTarget {
  /** Lower case; an IPv6 address is in brackets. */
  readonly host: string;
  /** True for `*.host`: every host below, but not the host itself. */
  readonly wildcard: boolean;
  /** Null: every port. */
  readonly port: number | null;
}

export type NetworkTargetParse =
  | { readonly ok: true; readonly target: NetworkTarget }
  | { readonly ok: false; readonly reason: string };

/** What both allow, in canonical form. */
export function meetNetwork(a: Network, b: Network): Network {
  if (a === false || b === false) return false;
  if (a === true) return canonicalNetwork(b);
  if (b === true) return canonicalNetwork(a);
  const others = entriesOf(b.allow);
  return fromEntries(entriesOf(a.allow).flatMap((one) => others.flatMap((other) => meetEntries(one, other))));
}

/** True if `asked` allows anything that `has` does not. A malformed entry always exceeds. */
export function networkExceeds(asked: Network, has: Network): boolean {
  if (typeof asked === "boolean") return asked && has !== true;
  const ceiling = typeof has === "boolean" ? [] : entriesOf(has.allow);
  return asked.allow.some(({ to }) => {
    const parsed = parseTarget(to);
    if (!parsed.ok) return true;
    return has !== true && !ceiling.some((other) => inside(parsed.target, other));
  });
}

/** The canonical form: sorted, without entries that another one includes; an empty list is `false`. */
export function canonicalNetwork(network: Network): Network {
  return typeof network === "boolean" ? network : fromEntries(entriesOf(network.allow));
}

/** Reads `example.org:443`, `*.example.org:443`, `example.org:*` or `[::1]:80`. Never throws. */
export function parseTarget(raw: string): NetworkTargetParse {
  const colon = raw.lastIndexOf(":");
  if (colon < 0) return refuse(raw, "a port is missing; write `host:port`, or `host:*` for every port");
  const port = raw.slice(colon + 1);
  if (port !== "*" && (!/^[1-9][0-9]{0,4}$/.test(port) || Number(port) > 65_535)) {
    return refuse(raw, "the port must be 1 to 65535, or `*`");
  }
  const wildcard = raw.startsWith("*.");
  const host = raw.slice(wildcard ? 2 : 0, colon).toLowerCase();
  if (!(isHostName(host) || (!wildcard && isBracketedAddress(host)))) {
    return refuse(raw, "the host must be a name, an address, or `*.` and a name");
  }
  return { ok: true, target: { host, wildcard, port: port === "*" ? null : Number(port) } };
}

function refuse(raw: string, reason: string): NetworkTargetParse {
  return { ok: false, reason: `${JSON.stringify(raw.slice(0, 300))}: ${reason}` };
}

function isHostName(host: string): boolean {
  return host.length <= 253 && host.split(".").every((label) => /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/.test(label));
}

function isBracketedAddress(host: string): boolean {
  return /^\[[0-9a-f:.]{2,45}\]$/.test(host);
}

/** Malformed entries allow nothing. */
function entriesOf(allow: readonly NetworkRule[]): NetworkTarget[] {
  return allow.flatMap(({ to }) => {
    const parsed = parseTarget(to);
    return parsed.ok ? [parsed.target] : [];
  });
}

function fromEntries(entries: readonly NetworkTarget[]): Network {
  const byText = new Map(entries.map((entry) => [textOf(entry), entry]));
  const kept = [...byText].filter(([, entry]) => ![...byText.values()].some((o) => o !== entry && inside(entry, o)));
  return kept.length === 0
    ? false
    : {
        allow: kept
          .map(([text]) => text)
          .sort()
          .map((to) => ({ to })),
      };
}

function textOf({ host, wildcard, port }: NetworkTarget): string {
  return `${wildcard ? "*." : ""}${host}:${port ?? "*"}`;
}

/** True if `outer` matches everything that `inner` matches. */
function inside(inner: NetworkTarget, outer: NetworkTarget): boolean {
  return hostInside(inner, outer) && (outer.port === null || outer.port === inner.port);
}

function hostInside(inner: NetworkTarget, outer: NetworkTarget): boolean {
  if (outer.wildcard) return inner.host.endsWith(`.${outer.host}`) || (inner.wildcard && inner.host === outer.host);
  return !inner.wildcard && inner.host === outer.host;
}

function meetEntries(a: NetworkTarget, b: NetworkTarget): NetworkTarget[] {
  const hosts = hostInside(a, b) ? a : hostInside(b, a) ? b : null;
  if (hosts === null || (a.port !== null && b.port !== null && a.port !== b.port)) return [];
  return [{ ...hosts, port: a.port ?? b.port }];
}
