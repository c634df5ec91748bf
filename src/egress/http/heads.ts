import type { IncomingMessage, ServerResponse } from "node:http";
import type { NetworkRefusal } from "../../sandbox/network/judge.ts";
import { canonicalHost, isLookedInto, type NetworkRule } from "../../sandbox/network/rule.ts";
import { Redactor } from "../../secrets/read-secret.ts";
import { BOUNDS, type Target } from "../model/outlet.ts";

/** Why a request is refused, in words for the worker and the user. */
export interface HeadFault {
  readonly reason: NetworkRefusal;
  readonly detail: string;
}

/** What is left of a refusal of a request that was thrown by a callback of Node, such as that of an agent. */
export class Faulty extends Error {
  override readonly name = "Faulty";
  readonly fault: HeadFault;

  constructor(fault: HeadFault) {
    super(fault.detail);
    this.fault = fault;
  }
}

const STATUS: Partial<Record<NetworkRefusal, number>> = {
  malformed: 400,
  limit: 429,
  unresolved: 502,
  unreachable: 502,
  digest: 502,
  secret: 502,
};

/** The status with which a refusal is answered. */
function statusOf(reason: NetworkRefusal): number {
  return STATUS[reason] ?? 403;
}

/** Answers a refusal; closes the connection if an answer has begun, so that the client sees that it is incomplete. */
export function answerFault(response: ServerResponse, { reason, detail }: HeadFault): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  const body = `${detail}\n`;
  // Where the next request begins, is not known.
  if (reason === "malformed") response.shouldKeepAlive = false;
  const headers = { "content-type": "text/plain; charset=utf-8", "content-length": Buffer.byteLength(body) };
  response.writeHead(statusOf(reason), headers).end(response.req.method === "HEAD" ? undefined : body);
}

/** The same for a connection without a request that Node could parse. It is to be closed after it. */
export function unparsedAnswer({ reason, detail }: HeadFault): string {
  const body = `${detail}\n`;
  const status = statusOf(reason);
  const lines = [
    `HTTP/1.1 ${status} ${status === 400 ? "Bad Request" : "Refused"}`,
    "content-type: text/plain; charset=utf-8",
    `content-length: ${Buffer.byteLength(body)}`,
    "connection: close",
  ];
  return `${lines.join("\r\n")}\r\n\r\n${body}`;
}

/** The lines of a header in their order, names as they were sent. */
export type HeaderLines = readonly (readonly [name: string, value: string])[];

/** From Node's flat list. */
export function headerLines(raw: readonly string[]): HeaderLines {
  return Array.from({ length: raw.length / 2 }, (_, index) => [raw[2 * index] ?? "", raw[2 * index + 1] ?? ""]);
}

/** A header's name as servers compare it; some take `_` for `-`. */
function plainName(name: string): string {
  return name.toLowerCase().replaceAll("_", "-");
}

export function valuesOf(lines: HeaderLines, name: string): readonly string[] {
  return lines.filter(([each]) => each.toLowerCase() === name).map(([, value]) => value);
}

/** These are about one connection and not about the message (RFC 9110 section 7.6.1). */
const HOP_BY_HOP = [
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authentication-info",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];

/** Without those for one connection, also those that `Connection` names. */
export function endToEnd(lines: HeaderLines): HeaderLines {
  const named = valuesOf(lines, "connection").flatMap((value) =>
    value.split(",").map((name) => plainName(name.trim())),
  );
  const dropped = new Set([...HOP_BY_HOP, ...named]);
  return lines.filter(([name]) => !dropped.has(plainName(name)));
}

/** A request of a cell whose host, framing and target have one meaning for every server. */
export interface RequestHead {
  /** Upper case. */
  readonly method: string;
  /** The host and port that the client wrote, in the cell's terms: `http://HOST/` is port 80. */
  readonly inside: Target;
  /** With its query, as it was sent. */
  readonly path: string;
  readonly lines: HeaderLines;
  /** How much the client wrote into its path and its header lines. */
  readonly bytes: number;
  /** How long the body is; `chunked` if it says so at its end. */
  readonly body: number | "chunked";
}

/** Who is asked: a host, of which requests name only the path, or the proxy, for which they name the whole URL. */
export type RequestReceiver = Target | "proxy";

export function readRequestHead(request: IncomingMessage, asked: RequestReceiver): RequestHead | HeadFault {
  const lines = headerLines(request.rawHeaders);
  const method = request.method ?? "";
  if (!["1.0", "1.1"].includes(request.httpVersion)) return malformed("its version of HTTP is not 1.0 or 1.1");
  if (method === "TRACE") return { reason: "method", detail: "TRACE is refused, as it repeats what Corral adds." };
  if (valuesOf(lines, "upgrade").some((value) => value.trim().toLowerCase() !== "h2c"))
    return malformed("Upgrade is refused: what follows could not be judged");
  const body = bodyLength(request, lines);
  if (typeof body === "object") return body;
  const url = readUrl(request.url ?? "", asked);
  if ("reason" in url) return url;
  const hosts = valuesOf(lines, "host");
  const host = hosts.length === 1 ? readAuthority(hosts[0] ?? "") : null;
  if (host === null) return malformed("the request must have one Host, as `example.org` or `example.org:8080`");
  const inside = url.authority ?? (asked === "proxy" ? host : asked);
  if (host.host !== inside.host || host.port !== inside.port) {
    const meant = inside.port === 80 ? inside.host : `${inside.host}:${inside.port}`;
    return { reason: "name", detail: `The request has another Host than ${meant}.` };
  }
  const bytes = lines.reduce((sum, [name, value]) => sum + name.length + value.length + 4, url.path.length);
  return { method, inside, path: url.path, lines, bytes, body };
}

/** `example.org:8080` or `[::1]`, as a client writes it; the port is 80 if none is written. Null for anything else. */
export function readAuthority(text: string, defaultPort = 80): Target | null {
  const [, rawHost = "", rawPort] = /^(\[[0-9a-f:.]+\]|[^:@[\]\s/?#\\%]+)(?::([1-9][0-9]{0,4}))?$/i.exec(text) ?? [];
  const host = canonicalHost(rawHost);
  const port = rawPort === undefined ? defaultPort : Number(rawPort);
  return host === null || port > 65_535 ? null : { host, port };
}

/** The target of a request: a path, or a URL if a proxy is asked; a server takes a URL too (RFC 9112 section 3.2.2). */
function readUrl(url: string, asked: RequestReceiver): { authority: Target | null; path: string } | HeadFault {
  if (!/^[\x21-\x7e]+$/.test(url) || url.includes("#")) return malformed("its URL has characters that must be escaped");
  if (url.startsWith("/"))
    return asked === "proxy"
      ? malformed("this is a proxy: the request must have a whole URL")
      : { authority: null, path: url };
  const [, rawAuthority, rest = ""] = /^http:\/\/([^/?]*)(.*)$/i.exec(url) ?? [];
  if (rawAuthority === undefined) return malformed("its URL must be a path, or begin with http://");
  const authority = readAuthority(rawAuthority);
  if (authority === null) return malformed("its URL must have a host, without a user");
  if (asked !== "proxy" && (authority.host !== asked.host || authority.port !== asked.port))
    return { reason: "name", detail: `The request has another host in its URL than ${asked.host}.` };
  return { authority, path: rest.startsWith("/") ? rest : `/${rest}` };
}

/** Node's parser refuses most of this already; what it leaves could still be read in two ways. */
function bodyLength(request: IncomingMessage, lines: HeaderLines): number | "chunked" | HeadFault {
  const codings = valuesOf(lines, "transfer-encoding");
  const lengths = valuesOf(lines, "content-length");
  if (codings.length + lengths.length > 1) return malformed("its length is given more than once");
  if (codings.length === 0) {
    const [length = "0"] = lengths;
    return /^[0-9]{1,15}$/.test(length) ? Number(length) : malformed("its Content-Length is no number");
  }
  const isChunked = codings[0]?.toLowerCase() === "chunked" && request.httpVersion === "1.1";
  return isChunked ? "chunked" : malformed("its Transfer-Encoding is not chunked");
}

function malformed(why: string): HeadFault {
  return { reason: "malformed", detail: `The request is refused: ${why}.` };
}

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
