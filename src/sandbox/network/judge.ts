import { isAddressIn } from "./address.ts";
import { pathMatches } from "./path-glob.ts";
import {
  type AllowedNetwork,
  canonicalHost,
  isAmong,
  isLookedInto,
  type NetworkRule,
  parseTarget,
  targetInside,
  urlInside,
} from "./rule.ts";

/** A request as Corral reads it, or with only host and port a connection that it does not look into. */
export interface JudgedRequest {
  readonly host: string;
  readonly port: number;
  /** Upper case. */
  readonly method?: string;
  /** With or without a query. */
  readonly path?: string;
}

export type NetworkJudgement =
  | { readonly ok: true; readonly rule: NetworkRule }
  | { readonly ok: false; readonly reason: NetworkRefusal; readonly detail: string };

/** How many rules a message names. */
const MAX_NAMED = 20;

/** The rules for this host and port, in their order. A text that is no host has none. */
export function rulesFor({ allow }: AllowedNetwork, rawHost: string, port: number): readonly NetworkRule[] {
  const host = canonicalHost(rawHost);
  if (host === null) return [];
  return allow.filter(({ to }) => {
    const parsed = parseTarget(to);
    return parsed.ok && targetInside({ host, wildcard: false, port }, parsed.target);
  });
}

/**
 * The rule that allows the request: of several the one that sets most headers, then one that is not bound to files of a lock
 * file, then the first. Or why none does, by the rule that comes nearest. Addresses are judged apart.
 */
export function judgeRequest(network: AllowedNetwork, request: JudgedRequest): NetworkJudgement {
  const { host, port, method, path } = request;
  const rules = rulesFor(network, host, port);
  const withMethod = rules.filter((rule) => hasMethod(rule, method));
  const [rule] = withMethod.filter((each) => hasPath(each, path)).sort(byPreference);
  if (rule !== undefined) return { ok: true, rule };
  const to = `${host}:${port}`;
  if (rules.length === 0)
    return {
      ok: false,
      reason: "host",
      detail: `${to} is not allowed. Allowed: ${named(network.allow)}.${askable(network, to)}`,
    };
  if (method === undefined) return { ok: false, reason: "tls", detail: `${to} is no tunnel. Use ${named(rules)}.` };
  if (withMethod.length === 0)
    return { ok: false, reason: "method", detail: `${method} is not allowed for ${to}. Allowed: ${named(rules)}.` };
  return {
    ok: false,
    reason: "path",
    detail: `This path is not allowed for ${method} to ${to}. Allowed: ${named(withMethod)}.`,
  };
}

/** True if the rule lets this address be dialled. A text that is no address is none. */
export function addressAllowed({ addresses }: NetworkRule, rawAddress: string): boolean {
  return isAddressIn(rawAddress, addresses);
}

/** What is allowed, one text for each rule, as a program in the cell writes it: `example.org:443`, `http://NAME/ (GET /a/**)`. */
export function allowedText({ allow }: Pick<AllowedNetwork, "allow">): readonly string[] {
  return [...new Set(allow.map(ruleText))];
}

function ruleText(rule: NetworkRule): string {
  const to = urlInside(rule);
  if (to === null) return rule.to;
  const bounds = [
    rule.methods?.join(" "),
    rule.artifacts === undefined ? rule.paths?.join(" ") : "files of the lock file",
  ];
  const said = bounds.filter((bound) => bound !== undefined).join(" ");
  return said === "" ? to : `${to} (${said})`;
}

/** What is in `dynamic` is asked for when a program tries to reach it. */
function askable({ dynamic }: AllowedNetwork, to: string): string {
  return dynamic !== undefined && isAmong(to, dynamic.within)
    ? " The user is asked if this run may reach it: try again in a while."
    : "";
}

function named(allow: readonly NetworkRule[]): string {
  const texts = allowedText({ allow });
  const more = texts.length > MAX_NAMED ? [`${texts.length - MAX_NAMED} more`] : [];
  return [...texts.slice(0, MAX_NAMED), ...more].join(", ") || "none";
}

/** Only a tunnel has what is not looked into. */
function hasMethod(rule: NetworkRule, method: string | undefined): boolean {
  if (method === undefined) return !isLookedInto(rule);
  return rule.methods?.includes(method) ?? true;
}

function byPreference(a: NetworkRule, b: NetworkRule): number {
  const [first, second] = [a, b].map(({ set = {} }) => Object.keys(set).length) as [number, number];
  return second - first || Number(a.artifacts !== undefined) - Number(b.artifacts !== undefined);
}

function hasPath({ paths, artifacts, packages }: NetworkRule, raw: string | undefined): boolean {
  const sent = raw?.split("?", 1)[0];
  if (sent === undefined) return paths === undefined && artifacts === undefined;
  const path = packages?.kind === "npm" ? scopeResolved(sent) : sent;
  if (artifacts !== undefined && !artifacts.some((artifact) => isMeant(artifact.path, path))) return false;
  return paths?.some((pattern) => isMeant(pattern, path)) ?? true;
}

/** A list of a lock file has thousands of plain paths, so these are compared first. */
function isMeant(pattern: string, path: string): boolean {
  return (pattern === path || pattern.includes("*")) && pathMatches(pattern, path);
}

/** npm asks for a package of a scope by `/@scope%2fname`, and every registry knows that. */
function scopeResolved(path: string): string {
  return path.replace(/\/(@[A-Za-z0-9~._-]+)%2f([A-Za-z0-9~._-]+)$/i, "/$1/$2");
}

/** What a run did on its network. Bounded: at most 200 lines in each list, the most frequent first. */
export interface NetworkReport {
  readonly allowed: readonly AllowedTraffic[];
  readonly denied: readonly DeniedTraffic[];
  /** How many further hosts are in no line of these lists. */
  readonly unlisted: number;
}

export interface AllowedTraffic {
  /** `host:port`, as the rule or the request names it. */
  readonly to: string;
  readonly connections: number;
  /** Requests that Corral judged; 0 for a tunnel. */
  readonly requests: number;
  /** Bytes to the host. */
  readonly up: number;
  /** Bytes from the host. */
  readonly down: number;
}

export interface DeniedTraffic {
  readonly to: string;
  readonly count: number;
  readonly reason: NetworkRefusal;
  /** In words, with what is allowed instead. Without contents of requests. */
  readonly detail: string;
}

/** Why a connection or a request was refused. */
export type NetworkRefusal =
  | "host" // no rule allows the host and port
  | "method"
  | "path"
  | "address" // the name leads to an address that may not be dialled
  | "unresolved" // the name has no address
  | "unreachable" // no address answered, or its certificate was not accepted
  | "name" // SNI or Host names another host
  | "malformed" // not TLS, not HTTP, or ambiguous HTTP
  | "tls" // TLS to a host that Corral looks into
  | "digest" // a file differs from the lock file
  | "secret" // a secret is not available
  | "limit"; // a budget or a bound was reached
