import { domainToASCII } from "node:url";
import { blockText, isAddressIn, parseBlock } from "../../sandbox/network/address.ts";
import { patternFault } from "../../sandbox/network/path-glob.ts";
import {
  type DynamicNetwork,
  isAddress,
  isLookedInto,
  type NetworkLimits,
  type NetworkRule,
  type NetworkTarget,
  networkTargetText,
  type PackageKind,
  parseTarget,
} from "../../sandbox/network/rule.ts";

/* The terms of a rule as a person or a program writes them, each read to the one form that is compared. */

export type TermRead = { readonly value: string } | { readonly fault: string };

/** `host:port`: lower case, no dot at the end, names of other alphabets in ASCII. */
export function readTarget(raw: string): TermRead {
  const parsed = parseTarget(inAscii(raw));
  return parsed.ok ? { value: networkTargetText(parsed.target) } : { fault: parsed.reason };
}

/** They are for proxies, or repeat to the cell what Corral sent. */
const REFUSED_METHODS = ["CONNECT", "TRACE", "TRACK"];

export function readMethod(raw: string): TermRead {
  const name = raw.toUpperCase();
  if (REFUSED_METHODS.includes(name)) return { fault: `cannot be allowed: ${name} is not passed on` };
  return /^[A-Z][A-Z-]{0,30}$/.test(name) ? { value: name } : { fault: "must be a method such as GET" };
}

export function readPath(raw: string): TermRead {
  const fault = patternFault(raw);
  return fault === null ? { value: raw } : { fault };
}

export function readAddresses(raw: string): TermRead {
  const block = parseBlock(raw);
  if (block === null) return { fault: "must be addresses such as `10.1.0.0/16` or `fd00::/8`" };
  if (/^::ffff:/.test(blockText(block))) return { fault: "must be written as IPv4, without `::ffff:`" };
  const [address] = blockText(block).split("/");
  const isWhole = parseBlock(raw.split("/", 1)[0] ?? "")?.value === block.value;
  return isWhole
    ? { value: blockText(block) }
    : { fault: `must be written from its first address: \`${address}/${block.prefix}\`` };
}

/** Headers that belong to the connection, or with which a request would mean something else than what was judged. */
const REFUSED_HEADERS = [
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "expect",
  "forwarded",
  "host",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "range",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "via",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-url",
  "x-rewrite-url",
];

/** What is wrong with a header that a rule sets, or null. */
export function headerFault(name: string): string | null {
  if (!/^[a-z0-9][a-z0-9._-]{0,63}$/i.test(name)) return "must be the name of a header";
  return REFUSED_HEADERS.includes(name.toLowerCase()) ? "cannot be set: Corral or the connection decides it" : null;
}

/** An address that is not public is dialled only if the rule says so, and a rule that is for one should say it; `localhost` is always at such. */
export function privateAddressFault(rule: NetworkRule): string | null {
  const { host = "", wildcard = false } = targetOf(rule.to) ?? {};
  if (host === "localhost" && !wildcard && rule.addresses === undefined)
    return `\`localhost\` is not public; write \`{ to: "${rule.to}", addresses: ["127.0.0.1/32", "::1/128"] }\``;
  const address = host.replace(/^\[|\]$/g, "");
  if (!isAddress(host) || isAddressIn(address, rule.addresses)) return null;
  const block = parseBlock(address);
  const cidr = block === null ? address : blockText(block);
  return `\`${address}\` is not public; write \`{ to: "${rule.to}", addresses: ["${cidr}"] }\``;
}

/** The rules that would be at a place in the cell where another one is already. */
export function placeFaults(rules: readonly NetworkRule[]): { readonly index: number; readonly fault: string }[] {
  const places = rules.map(targetPlace);
  return places.flatMap((place, index) => {
    const isTaken = (other: Place): boolean => other.host === place.host && other.port !== place.port;
    const before = place.host === null ? undefined : places.slice(0, index).find(isTaken);
    if (before === undefined) return [];
    const advice = "leave one out, or let neither be looked into";
    const both = `would both be \`http://${place.host}/\` in the cell; ${advice}`;
    return [{ index, fault: `\`${place.to}\` and \`${before.to}\` ${both}` }];
  });
}

interface Place {
  readonly to: string;
  readonly host: string | null;
  readonly port: number;
}

/** Which host's port 80 of the cell a rule takes: its own, or that of the looked-into port 443. */
function targetPlace(rule: NetworkRule): Place {
  const target = targetOf(rule.to);
  const port = target?.port ?? 0;
  const takes = port === 80 || (port === 443 && isLookedInto(rule));
  return { to: rule.to, port, host: takes && target?.wildcard === false ? target.host : null };
}

function targetOf(to: string): NetworkTarget | null {
  const parsed = parseTarget(to);
  return parsed.ok ? parsed.target : null;
}

/** Only the host, since the rest of the text has a form of its own. */
function inAscii(raw: string): string {
  const [, before = "", host = "", after = ""] = /^(\*\.)?(.*?)(:[^:]*)?$/s.exec(raw) ?? [];
  const isAscii = /^[\0-\x7f]*$/.test(host);
  return isAscii ? raw : `${before}${domainToASCII(host) || host}${after}`;
}

/** A network as a file declares it: checked in form. `resolveNetwork` makes rules of its packages and lock files. */
export type RawNetwork = boolean | RawAllowList;

export interface RawAllowList extends PackageTerms {
  readonly allow: readonly NetworkRule[];
  readonly limits?: NetworkLimits;
  readonly dynamic?: DynamicNetwork;
}

/** One preset that a file names. */
export interface PackagePreset {
  readonly kind: PackageKind;
  /** The only addresses of its hosts that may be dialled, as in a rule. */
  readonly addresses?: readonly string[];
}

export interface PackageTerms {
  readonly packages?: readonly PackagePreset[];
  /** Paths of lock files, relative to the project. */
  readonly lockfiles?: readonly string[];
}
