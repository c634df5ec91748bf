import { isLookedInto, type NetworkRule } from "../../sandbox/network/rule.ts";
import { Redactor } from "../../secrets/read-secret.ts";
import { BOUNDS, type Target } from "../model/outlet.ts";
import { endToEnd, type HeaderLines, type HeadFault, plainName, type RequestHead } from "./request-head.ts";

/** Of a secret that changes, such as a token of an hour, so many values are still removed from answers. */
const MAX_VALUES = 16;

/** The values of secrets, each kept in memory for a moment. */
export class SecretValues {
  readonly #secretOf: (name: string) => Promise<string>;
  readonly #fresh = new Map<string, { readonly value: Promise<string>; readonly untilMs: number }>();
  readonly #used = new Map<string, string[]>();
  #redactor: Redactor | null = null;

  constructor(secretOf: (name: string) => Promise<string>) {
    this.#secretOf = secretOf;
  }

  /** As bytes of a header, in Latin-1. Rejects as the source does. */
  async value(name: string): Promise<string> {
    const known = this.#fresh.get(name);
    if (known !== undefined && known.untilMs > performance.now()) return await known.value;
    const value = this.#secretOf(name).then((secret) => this.#use(name, secret));
    this.#fresh.set(name, { value, untilMs: performance.now() + BOUNDS.secretMs });
    value.catch(() => this.#fresh.delete(name));
    return await value;
  }

  /** Removes every value that was ever sent; null if none was. Texts are bytes in Latin-1. */
  get redactor(): Redactor | null {
    return this.#redactor;
  }

  #use(name: string, secret: string): string {
    const values = this.#used.get(name) ?? [];
    if (!values.includes(secret)) {
      this.#used.set(name, [...values, secret].slice(-MAX_VALUES));
      this.#redactor = new Redactor([...this.#used.values()].flat().flatMap(partsOf));
    }
    return asBytes(secret);
  }
}

function asBytes(text: string): string {
  return Buffer.from(text).toString("latin1");
}

const MIN_PART = 6;

/** A value of `authorization` has a scheme in front, and servers repeat only what is behind it. */
function partsOf(secret: string): string[] {
  const [, scheme = "", credentials = ""] = /^([A-Za-z][A-Za-z0-9-]*) +(\S+)$/.exec(secret) ?? [];
  const user = scheme.toLowerCase() === "basic" ? Buffer.from(credentials, "base64").toString() : "";
  const password = user.slice(user.indexOf(":") + 1);
  const parts = [credentials, user, password].filter((part) => part.length >= MIN_PART);
  return [secret, ...parts].flatMap((part) => [part, asBytes(part)]);
}

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
export function overrideFault({ lines, path }: RequestHead, rule: NetworkRule): HeadFault | null {
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
