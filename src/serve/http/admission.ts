import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { ServiceFault } from "./fault.ts";

/** Where a service listens. */
export type Address =
  | { readonly kind: "tcp"; readonly host: string; readonly port: number }
  | { readonly kind: "unix"; readonly path: string };

/** Longer than any that a route takes. */
const MAX_URL_CHARS = 8192;

/** The names under which a service may be asked for. */
export interface OwnNames {
  /** Host and port in lower case, as a `Host` header has them. */
  readonly hosts: ReadonlySet<string>;
  /** Any address of the machine: the service listens on all of them. */
  readonly anyAddressAt: number | null;
}

/** `further`: names of the machine, without a port, that the user allowed. */
export function ownNames(address: Address, further: readonly string[]): OwnNames {
  if (address.kind === "unix") return { hosts: new Set(["localhost", "corral"]), anyAddressAt: null };
  const { host, port } = address;
  const named = [...further, "localhost", ...(isIP(host) === 6 ? [`[${host}]`] : [host])];
  const loopback = isLoopback(host) ? ["127.0.0.1", "[::1]"] : [];
  const hosts = [...named, ...loopback].flatMap((name) => [`${name}:${port}`, ...(port === 80 ? [name] : [])]);
  return { hosts: new Set(hosts.map((name) => name.toLowerCase())), anyAddressAt: isAny(host) ? port : null };
}

export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function isAny(host: string): boolean {
  return host === "0.0.0.0" || host === "::";
}

/**
 * Refuses a request that was not meant for this service. A web page whose name was made to mean this machine (DNS rebinding)
 * sends its own name as `Host`; a page of another site sends its own `Origin`, also where CORS would keep it from the answer.
 *
 * @throws ServiceFault
 */
export function checkMeant({ headers, method, url = "", rawHeaders }: IncomingMessage, names: OwnNames): void {
  const { host = "", origin } = headers;
  const wrong = new ServiceFault(403, "FOREIGN_REQUEST", "the request was not meant for this service");
  // Node keeps the first of several; a proxy may have checked another one.
  if (countOf(rawHeaders, "host") !== 1 || !isOwnHost(host.toLowerCase(), names)) throw wrong;
  if (origin !== undefined && origin.toLowerCase() !== `http://${host.toLowerCase()}`) throw wrong;
  const site = headers["sec-fetch-site"];
  // A link of another site may lead to the page: its address is the same for everybody, and it cannot be framed.
  const isLink = headers["sec-fetch-mode"] === "navigate" && headers["sec-fetch-dest"] === "document";
  if (method === "GET" && url === "/" && isLink) return;
  if (site !== undefined && site !== "same-origin" && site !== "none") throw wrong;
  if (url.length > MAX_URL_CHARS) throw new ServiceFault(400, "WRONG_REQUEST", "the URL is too long");
  // The absolute form is for proxies, and would bring a second host.
  if (!url.startsWith("/") || url.startsWith("//"))
    throw new ServiceFault(400, "WRONG_REQUEST", "the URL is not a path");
}

function isOwnHost(host: string, { hosts, anyAddressAt }: OwnNames): boolean {
  if (hosts.has(host)) return true;
  const [, name = "", port] = /^(.*):(\d+)$/.exec(host) ?? [];
  // A page that was led here by a name sends that name, and never an address.
  return anyAddressAt !== null && Number(port) === anyAddressAt && isIP(name.replace(/^\[(.*)\]$/, "$1")) !== 0;
}

function countOf(rawHeaders: readonly string[], name: string): number {
  return rawHeaders.filter((text, index) => index % 2 === 0 && text.toLowerCase() === name).length;
}
