import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { isUnambiguous, onlyHost } from "../../platform/http.ts";
import type { Tokens } from "../../state/service/tokens.ts";
import type { Log } from "../logging/log.ts";
import { ServiceFault } from "./fault.ts";
import type { ServiceCaller } from "./router.ts";

const MAX_HEADER_CHARS = 1024;

/** A process that can open the Unix socket belongs to the user who runs the service, or to root. */
export const SOCKET_CALLER: ServiceCaller = { name: "socket", roles: ["admin"], token: null };

/** The token in the link to the page. It is nowhere on the disk, and ends with the service. */
export class PageToken {
  readonly value = `corral_${randomBytes(32).toString("base64url")}`;

  /** Null: the value is another one. */
  caller(value: string): ServiceCaller | null {
    return timingSafeEqual(hashOf(value), hashOf(this.value)) ? { name: "page", roles: ["admin"], token: null } : null;
  }
}

/** Who sent the request, by its token. @throws ServiceFault UNAUTHORIZED */
export async function authenticated(
  { headers }: IncomingMessage,
  tokens: Tokens,
  page: PageToken | null,
): Promise<ServiceCaller> {
  const { authorization = "" } = headers;
  const given = authorization.length > MAX_HEADER_CHARS ? undefined : /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
  const own = given === undefined ? null : (page?.caller(given) ?? null);
  if (own !== null) return own;
  const token = given === undefined ? null : await tokens.find(given);
  if (token === null)
    throw new ServiceFault(
      401,
      "UNAUTHORIZED",
      "send a valid token: `Authorization: Bearer …`; `corral serve token create` makes one",
      "unauthorized",
    );
  return { name: token.name, roles: token.roles, token: token.id };
}

function hashOf(value: string): Buffer {
  return createHash("sha256").update(value).digest();
}

/** Where a service listens. */
export type Address =
  | { readonly kind: "tcp"; readonly host: string; readonly port: number }
  | { readonly kind: "unix"; readonly path: string };

/** Longer than any that a route takes. */
const MAX_URL_CHARS = 8192;

/** The names under which a service may be asked for. */
export interface OwnNames {
  /** Host and port in lower case, as a `Host` header has them, each with the `Origin` of its pages. */
  readonly hosts: ReadonlyMap<string, string>;
  /** Any address of the machine: the service listens on all of them. */
  readonly anyAddressAt: number | null;
}

/** A name that the user allowed: `NAME`, at the port of the service, or `https://NAME[:PORT]` of a proxy in front of it. */
const FURTHER = /^(?:(https?):\/\/)?([\w.-]{1,253})(?::(\d{1,5}))?$/;
const USUAL_PORTS = { http: 80, https: 443 };

export function isFurtherName(text: string): boolean {
  const [, scheme, , port] = FURTHER.exec(text) ?? [null];
  return (
    FURTHER.test(text) && (port === undefined || (scheme !== undefined && Number(port) > 0 && Number(port) <= 65_535))
  );
}

/** `further`: see {@link isFurtherName}. */
export function ownNames(address: Address, further: readonly string[]): OwnNames {
  if (address.kind === "unix")
    return { hosts: new Map(further.flatMap(proxied).concat(SOCKET_NAMES)), anyAddressAt: null };
  const { host, port } = address;
  const named = ["localhost", ...(isIP(host) === 6 ? [`[${host}]`] : [host])];
  const loopback = isLoopback(host) ? ["127.0.0.1", "[::1]"] : [];
  const plain = further.filter((text) => !text.includes("://"));
  const hosts = [...plain, ...named, ...loopback].flatMap((name) => entries("http", name, port));
  return { hosts: new Map([...hosts, ...further.flatMap(proxied)]), anyAddressAt: isAny(host) ? port : null };
}

const SOCKET_NAMES: readonly [string, string][] = ["localhost", "corral"].map((name) => [name, `http://${name}`]);

/** Of a proxy, whose clients use its own scheme and port. */
function proxied(text: string): [string, string][] {
  const [, scheme, name = "", port] = FURTHER.exec(text) ?? [];
  if (scheme !== "http" && scheme !== "https") return [];
  return entries(scheme, name, port === undefined ? USUAL_PORTS[scheme] : Number(port));
}

/** Clients leave out the usual port, in `Host` and in `Origin`. */
function entries(scheme: "http" | "https", name: string, port: number): [string, string][] {
  const [bare, whole] = [name.toLowerCase(), `${name.toLowerCase()}:${port}`];
  if (port !== USUAL_PORTS[scheme]) return [[whole, `${scheme}://${whole}`]];
  return [bare, whole].map((host) => [host, `${scheme}://${bare}`]);
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
 * `onForeign`: which name or origin is none of the service's.
 *
 * @throws ServiceFault
 */
export function checkMeant(request: IncomingMessage, names: OwnNames, onForeign: (foreign: Foreign) => void): void {
  const { headers, method, url = "", rawHeaders } = request;
  const { origin } = headers;
  const wrong = new ServiceFault(403, "FOREIGN_REQUEST", "the request was not meant for this service");
  const host = onlyHost(rawHeaders);
  if (!isUnambiguous(request)) throw wrong;
  const own = host === null ? null : originAt(host, names);
  if (host === null || own === null) {
    if (host !== null) onForeign({ host });
    throw wrong;
  }
  if (origin !== undefined && withoutUsualPort(origin) !== own) {
    onForeign({ host, origin });
    throw wrong;
  }
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

/** What a request named that is none of the service's. */
export interface Foreign {
  readonly host: string;
  readonly origin?: string;
}

/** The origin of pages under this name; null: it is none of the service's. */
function originAt(host: string, { hosts, anyAddressAt }: OwnNames): string | null {
  const known = hosts.get(host);
  if (known !== undefined) return known;
  const [, name = "", port] = /^(.*):(\d+)$/.exec(host) ?? [];
  // A page that was led here by a name sends that name, and never an address.
  const isAddress =
    anyAddressAt !== null && Number(port) === anyAddressAt && isIP(name.replace(/^\[(.*)\]$/, "$1")) !== 0;
  return isAddress ? withoutUsualPort(`http://${host}`) : null;
}

function withoutUsualPort(origin: string): string {
  return origin.toLowerCase().replace(/^(http:\/\/.*):80$|^(https:\/\/.*):443$/, "$1$2");
}

const MAX_FOREIGN_CHARS = 200;

/** Logs each name once, and no more than `most` of them: what the user has to set if this service was meant. */
export function tellingForeign(log: Pick<Log, "warn">, most = 20): (foreign: Foreign) => void {
  const told = new Set<string>();
  return ({ host, origin }) => {
    const about = {
      host: host.slice(0, MAX_FOREIGN_CHARS),
      ...(origin && { origin: origin.slice(0, MAX_FOREIGN_CHARS) }),
    };
    const key = JSON.stringify(about);
    if (told.size >= most || told.has(key)) return;
    told.add(key);
    const rest = told.size < most ? "" : ". Further ones are not logged";
    log.warn(about, `${origin === undefined ? FOREIGN_HOST : FOREIGN_ORIGIN}${rest}`);
  };
}

const FOREIGN_HOST =
  "refused: the service has no such name. If clients ask a proxy in front of it for this name, start it with --host https://NAME[:PORT]; if they ask it directly, with --host NAME";
const FOREIGN_ORIGIN =
  "refused: a page of another origin. If this is the page of the service, behind a proxy, start it with --host and this origin";

/** Who holds a part: a token, the page's own, or all that come by the Unix socket. */
export interface ShareOwner {
  readonly key: string;
  /** Null: one that is in no file, and cannot be removed. */
  readonly token: string | null;
  /** Those of admins have a whole of their own, so that no other token is in their way. */
  readonly isAdmin: boolean;
}

export function ownerOf({ name, token, roles }: ServiceCaller): ShareOwner {
  return { key: token ?? name, token, isAdmin: roles.includes("admin") };
}

interface ShareLimits {
  /** Of all owners of a kind together. */
  readonly all: number;
  readonly each: number;
}

/** What one request or connection has of a whole. Disposing gives it back. */
export interface HeldShare extends Disposable {
  readonly owner: ShareOwner;
  readonly amount: number;
  /** False: there is no room for so much more. */
  take(amount: number): boolean;
  /** From now on it does not give way. */
  keep(): void;
}

interface Held extends Omit<HeldShare, "amount"> {
  amount: number;
  giveWay: (() => void) | null;
}

/**
 * What the clients of a service share: places, bytes in memory, bytes on the disk. No owner holds more than its share. If many owners together
 * hold the whole, the one that holds most gives way to one that holds less, so that none is shut out.
 */
export class Shares {
  readonly limits: ShareLimits;
  /** In the order in which they were opened. */
  readonly #open = new Set<Held>();

  constructor(limits: ShareLimits) {
    this.limits = limits;
  }

  /** A part that is empty. `giveWay`: ends what needs it. */
  open(owner: ShareOwner, giveWay: () => void): HeldShare {
    const held: Held = {
      owner,
      amount: 0,
      giveWay,
      take: (amount) => this.#take(held, amount),
      keep: () => {
        held.giveWay = null;
      },
      [Symbol.dispose]: () => void this.#open.delete(held),
    };
    this.#open.add(held);
    return held;
  }

  /** Ends what tokens hold that are no more. */
  endAllBut(tokens: ReadonlySet<string>): void {
    for (const { owner, giveWay } of this.#open) if (owner.token !== null && !tokens.has(owner.token)) giveWay?.();
  }

  #take(held: Held, amount: number): boolean {
    const { all, each } = this.limits;
    const { owner } = held;
    const sums = new Map<string, number>();
    let sum = 0;
    for (const one of this.#open) {
      if (one.owner.isAdmin !== owner.isAdmin) continue;
      sum += one.amount;
      sums.set(one.owner.key, (sums.get(one.owner.key) ?? 0) + one.amount);
    }
    const own = (sums.get(owner.key) ?? 0) + amount;
    if (own > each) return false;
    while (sum + amount > all) {
      const giving = this.#heaviest(sums, owner.isAdmin);
      if (giving === null || (sums.get(giving.owner.key) ?? 0) <= own) return false;
      sum -= giving.amount;
      sums.set(giving.owner.key, (sums.get(giving.owner.key) ?? 0) - giving.amount);
      this.#open.delete(giving);
      giving.giveWay?.();
    }
    held.amount += amount;
    return true;
  }

  /** The oldest part of the owner that holds most, of those that can give way. */
  #heaviest(sums: ReadonlyMap<string, number>, isAdmin: boolean): Held | null {
    let found: Held | null = null;
    for (const one of this.#open) {
      if (one.giveWay === null || one.amount === 0 || one.owner.isAdmin !== isAdmin) continue;
      if (found === null || (sums.get(one.owner.key) ?? 0) > (sums.get(found.owner.key) ?? 0)) found = one;
    }
    return found;
  }
}
