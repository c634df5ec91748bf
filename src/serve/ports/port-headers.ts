import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { isUnambiguous, onlyHost } from "../../platform/http.ts";

/* What may go from a browser into a cell, and what a cell's server may say to a browser. Neither side is trusted. */

/** Where a port is shown, and what it is inside. */
export interface PortPlace {
  /** Of browsers: `RANDOM.localhost:PORT`. Cookies and storage of browsers are apart for each such name, and not for each port of one name. */
  readonly host: string;
  /** Of programs: `127.0.0.1:PORT`. */
  readonly address: string;
  /** In the cell. */
  readonly port: number;
}

export const PORT_COOKIE = "corral-port";
export const PORT_HEADER = "x-corral-port";
const METHODS = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);

export interface PortRefusal {
  readonly status: 400 | 401 | 403 | 502;
  readonly why: string;
}

type Asked = Pick<IncomingMessage, "method" | "url" | "headers" | "rawHeaders">;

/** The host that a request names; null: it is another one, as of a page whose name was made to mean this machine. */
export function meantHost({ rawHeaders }: Asked, { host, address }: PortPlace): "page" | "program" | null {
  const named = onlyHost(rawHeaders);
  return named === host ? "page" : named === address ? "program" : null;
}

/** Null: it may pass. `isKnown`: the secret of this port. */
export function refusedRequest(
  request: Asked,
  place: PortPlace,
  isKnown: (secret: string) => boolean,
  isSocket: boolean,
): PortRefusal | null {
  const { headers, method = "", url = "" } = request;
  const foreign: PortRefusal = { status: 403, why: "the request was not meant for this port" };
  const named = meantHost(request, place);
  if (named === null || !isUnambiguous(request)) return foreign;
  if (!url.startsWith("/") || !METHODS.has(method)) return { status: 400, why: "this method or URL is not passed on" };
  const { origin, "sec-fetch-site": site } = headers;
  const secret = headers[PORT_HEADER];
  // No page can send this header here: it would have to ask before, and is not answered.
  if (typeof secret === "string" && isKnown(secret)) return origin === undefined && site === undefined ? null : foreign;
  if (named !== "page" || !cookiesOf(headers.cookie).some(([name, value]) => name === PORT_COOKIE && isKnown(value)))
    return { status: 401, why: "ask for a new link: `corral session ports SESSION --link PORT`" };
  if (origin !== undefined ? origin !== `http://${place.host}` : isSocket) return foreign;
  if (site !== undefined && site !== "same-origin" && site !== "none") return foreign;
  // It would stay in the browser, and see the links of this origin.
  if (headers["service-worker"] !== undefined) return { status: 403, why: "no service worker is passed on" };
  return null;
}

function cookiesOf(header = ""): (readonly [name: string, value: string])[] {
  return header.split(";").map((pair) => {
    const at = pair.indexOf("=");
    return [pair.slice(0, Math.max(0, at)).trim(), pair.slice(at + 1).trim()];
  });
}

/** Of one connection, and of proxies. */
const HOP =
  /^(connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|expect|http2-settings|forwarded|x-forwarded-.*|x-corral-.*|via)$/;
/** A token of a service, wherever it is. */
const TOKEN = /corral_[\w-]{20}/;

/** One value is a text: so Node wants `host`. */
type Headers = Record<string, string | string[]>;
type Distinct = Readonly<Record<string, string[] | undefined>>;

function endToEnd(headers: Distinct): [name: string, values: string[]][] {
  const named = (headers.connection ?? []).flatMap((text) => text.toLowerCase().split(/\s*,\s*/));
  return Object.entries(headers).flatMap(([name, values]): [string, string[]][] =>
    values === undefined || HOP.test(name) || named.includes(name) ? [] : [[name, values]],
  );
}

/** What the cell's server is told. Nothing of Corral's own, and that it is asked at its own address. */
export function headersInside(headers: Distinct, { host, port }: PortPlace): Headers {
  const inside: Headers = {};
  for (const [name, values] of endToEnd(headers)) {
    const passed = name === "cookie" ? [otherCookies(values.join("; "))] : values;
    const harmless = passed.filter((value) => value !== "" && !TOKEN.test(value));
    if (harmless.length > 0 && name !== "referer")
      inside[name] = harmless.length === 1 ? (harmless[0] ?? "") : harmless;
  }
  inside.host = `localhost:${port}`;
  if (inside.origin !== undefined) inside.origin = `http://localhost:${port}`;
  const [referer = ""] = headers.referer ?? [];
  if (referer.startsWith(`http://${host}/`))
    inside.referer = `http://localhost:${port}${referer.slice(`http://${host}`.length)}`;
  if (headers["transfer-encoding"] !== undefined) inside["transfer-encoding"] = "chunked";
  return inside;
}

function otherCookies(header: string): string {
  const others = cookiesOf(header).filter(([name]) => name !== PORT_COOKIE);
  return others.map(([name, value]) => (name === "" ? value : `${name}=${value}`)).join("; ");
}

/** A browser would keep it beyond this answer, or do more with it than show it. */
const KEPT =
  /^(strict-transport-security|alt-svc|clear-site-data|service-worker-allowed|nel|report-to|reporting-endpoints|public-key-pins.*|access-control-.*|cross-origin-.*|x-frame-options|permissions-policy|refresh|x-dns-prefetch-control|referrer-policy|speculation-rules|origin-agent-cluster)$/;

export type PassedAnswer =
  | { readonly ok: true; readonly headers: Headers }
  | { readonly ok: false; readonly refusal: PortRefusal };

/** What a browser is told of an answer. `url`: that of the request. */
export function headersOutside(
  { statusCode = 0, headersDistinct }: Pick<IncomingMessage, "statusCode" | "headersDistinct">,
  place: PortPlace,
  url: string,
): PassedAnswer {
  const refused = (why: string): PassedAnswer => ({ ok: false, refusal: { status: 502, why } });
  // Node's parser takes more than Node's server sends.
  if (statusCode < 200 || statusCode > 599) return refused(`the server of the session answered with ${statusCode}`);
  const outside: Headers = {};
  for (const [name, values] of endToEnd(headersDistinct)) if (!KEPT.test(name)) outside[name] = values;
  delete outside["set-cookie"];
  const cookies = (headersDistinct["set-cookie"] ?? []).flatMap((text) => cookieOutside(text) ?? []);
  if (cookies.length > 0) outside["set-cookie"] = cookies;
  delete outside.location;
  const [location] = headersDistinct.location ?? [];
  if (location !== undefined) {
    const within = locationOutside(location, place, url);
    if (within !== null) outside.location = within;
    else if (statusCode >= 300 && statusCode < 400) return refused("the server of the session leads to another place");
  }
  const policies = headersDistinct["content-security-policy"] ?? [];
  outside["content-security-policy"] = [...policies, policyOf(place)];
  return { ok: true, headers: { ...outside, ...ISOLATED } };
}

/** Null: it is not passed on. A cookie is for this origin alone. */
function cookieOutside(text: string): string | null {
  const [pair = "", ...attributes] = text.split(";");
  if (pair.split("=")[0]?.trim() === PORT_COOKIE) return null;
  return [pair, ...attributes.filter((one) => !/^\s*domain\s*(=|$)/i.test(one))].join(";");
}

/** In this origin; null: elsewhere. */
function locationOutside(location: string, { host, port }: PortPlace, url: string): string | null {
  const base = `http://${host}`;
  if (!URL.canParse(location, `${base}${url}`)) return null;
  const { protocol, host: named, pathname, search, hash } = new URL(location, `${base}${url}`);
  const own = [
    host,
    ...["localhost", "127.0.0.1", "[::1]", "0.0.0.0"].map((name) => (port === 80 ? name : `${name}:${port}`)),
  ];
  return protocol === "http:" && own.includes(named) ? `${base}${pathname}${search}${hash}` : null;
}

/**
 * A cell has no network, and a page of it in a browser has none either: it loads from itself alone, and is in no frame of others. To lead the whole
 * window elsewhere, which its user sees, is all that no policy keeps it from.
 */
function policyOf({ host }: PortPlace): string {
  return [
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:",
    `connect-src 'self' ws://${host} data: blob:`,
    "object-src 'none'",
    "base-uri 'self'",
    "form-action 'self'",
    "frame-ancestors 'self'",
    "webrtc 'block'",
  ].join("; ");
}

/** On every answer. */
const ISOLATED: Readonly<Record<string, string>> = {
  "x-frame-options": "SAMEORIGIN",
  "x-dns-prefetch-control": "off",
  "referrer-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-resource-policy": "same-origin",
  "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=(), clipboard-read=()",
};

/** The answer to a WebSocket's request, without what is not of it; null: it is no such answer. */
export function socketAnswer({
  statusCode,
  headers,
}: {
  readonly statusCode?: number | undefined;
  readonly headers: IncomingHttpHeaders;
}): string | null {
  if (statusCode !== 101 || headers.upgrade?.toLowerCase() !== "websocket") return null;
  const lines = ["sec-websocket-accept", "sec-websocket-protocol", "sec-websocket-extensions"].flatMap((name) =>
    typeof headers[name] === "string" ? [`${name}: ${headers[name]}`] : [],
  );
  return ["HTTP/1.1 101 Switching Protocols", "connection: Upgrade", "upgrade: websocket", ...lines, "", ""].join(
    "\r\n",
  );
}
