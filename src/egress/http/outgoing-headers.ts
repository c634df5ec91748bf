import { isLookedInto, type NetworkRule } from "../../sandbox/network/rule.ts";
import type { Target } from "../model/outlet.ts";
import type { Fault } from "./fault.ts";
import { endToEnd, type HeaderLines, plainName } from "./headers.ts";
import type { RequestHead } from "./request-head.ts";

/** With one of these a server takes a request for another one than Corral judged. */
const OVERRIDES = [
  "x-http-method",
  "x-http-method-override",
  "x-method-override",
  "x-original-method",
  "x-original-path",
  "x-original-uri",
  "x-original-url",
  "x-forwarded-path",
  "x-forwarded-prefix",
  "x-forwarded-uri",
  "x-override-url",
  "x-rewrite-url",
];

/** Only a proxy that the server trusts says these, and Corral is none. The first would bring the client to `https://`. */
const NOT_THE_CLIENTS = [
  "upgrade-insecure-requests",
  "forwarded",
  "x-forwarded-for",
  "x-forwarded-host",
  "x-forwarded-port",
  "x-forwarded-proto",
  "x-forwarded-scheme",
  "x-forwarded-server",
  "x-forwarded-ssl",
  "x-host",
  "x-http-host-override",
  "x-original-host",
  "x-real-ip",
];

/** These are Corral's to say. `expect` is answered by Corral. */
const OWN = ["host", "content-length", "expect"];

/** Why the headers could undo what the rule says; null if they do not. */
export function overrideFault({ lines, path }: RequestHead, rule: NetworkRule): Fault | null {
  if (!isLookedInto(rule)) return null;
  const header = lines.map(([name]) => plainName(name)).find((name) => OVERRIDES.includes(name));
  if (header !== undefined)
    return { reason: "malformed", detail: `The request is refused: ${header} could change its method or path.` };
  const isOverridden = rule.methods !== undefined && /[?&](_method|x-http-method-override)=/i.test(decoded(path));
  return isOverridden
    ? { reason: "malformed", detail: "The request is refused: its query names another method." }
    : null;
}

export interface Outgoing {
  readonly head: RequestHead;
  readonly target: Target;
  readonly secure: boolean;
  readonly rule: NetworkRule;
  /** Values by the names of headers. */
  readonly set: ReadonlyMap<string, string>;
  /** True if the answer is changed or compared on its way, which needs all of it as it is. */
  readonly whole: boolean;
}

/** The headers of the request to the host, as Node's flat list. */
export function outgoingHeaders({ head, target, secure, rule, set, whole }: Outgoing): string[] {
  const dropped = new Set([
    ...OWN,
    ...NOT_THE_CLIENTS,
    ...[...set.keys(), ...(rule.without ?? [])].map(plainName),
    ...(whole ? ["accept-encoding", "range", "if-range"] : []),
  ]);
  const kept = endToEnd(head.lines).filter(([name]) => !dropped.has(plainName(name)));
  const isUsual = target.port === (secure ? 443 : 80);
  const own: HeaderLines = [
    ["host", isUsual ? target.host : `${target.host}:${target.port}`],
    ...(whole ? [["accept-encoding", "identity"] as const] : []),
    ...bodyHeader(head),
    // What a server leaves unread of a body would be another request, which Corral did not judge.
    ["connection", head.body === 0 ? "keep-alive" : "close"],
    ...set,
  ];
  return [...own, ...kept].flat();
}

function bodyHeader({ body, method }: RequestHead): HeaderLines {
  if (body === "chunked") return [["transfer-encoding", "chunked"]];
  const hasNone = body === 0 && ["GET", "HEAD", "OPTIONS", "DELETE"].includes(method);
  return hasNone ? [] : [["content-length", String(body)]];
}

function decoded(text: string): string {
  return text.replaceAll(/%([0-9a-f]{2})/gi, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}
