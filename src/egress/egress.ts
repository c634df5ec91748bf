import type { Server } from "node:http";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { createSecureContext } from "node:tls";
import { createServer } from "../platform/http.ts";
import { type DeniedTraffic, judgeRequest, type NetworkReport } from "../sandbox/network/judge.ts";
import type { Rewrite } from "../sandbox/network/package-environment.ts";
import type { AllowedNetwork, NetworkLimits, NetworkPlace } from "../sandbox/network/rule.ts";
import { dial, judgedAddresses } from "./dial/dial.ts";
import { bytesUntilVerdict, HANDSHAKE_RECORD } from "./first/client-hello.ts";
import { HttpConnection, type HttpParts } from "./http/connection.ts";
import { type HeadFault, type RequestReceiver, readAuthority, SecretValues, unparsedAnswer } from "./http/heads.ts";
import {
  BOUNDS,
  lookedInto,
  meantTarget,
  type Outlet,
  shown,
  type Target,
  targetText,
  tunnels,
  type Visit,
} from "./model/outlet.ts";
import { alertBytes, closeWith, Meter, Traffic } from "./traffic/traffic.ts";
import { tunnel } from "./tunnel/tunnel.ts";

/** Decides what a new connection of a cell is: a tunnel, HTTP that is looked into, or refused. */
class Entrance implements Disposable {
  readonly #outlet: Outlet;
  readonly #http: HttpServer;

  constructor(parts: HttpParts) {
    this.#outlet = parts.outlet;
    this.#http = new HttpServer(parts, (visit, authority, behind) => {
      this.#connect(visit, authority, behind).catch(() => visit.close());
    });
  }

  enter({ host, port }: NetworkPlace, visit: Visit): void {
    if (host === null) this.#http.serve(visit, "proxy", Buffer.alloc(0));
    else this.#enterHost({ host, port }, visit).catch(() => visit.close());
  }

  [Symbol.dispose](): void {
    this.#http[Symbol.dispose]();
  }

  /** A host that has tunnels only is one; at any other place the first byte says whether the client speaks TLS. */
  async #enterHost(inside: Target, visit: Visit): Promise<void> {
    const network = this.#outlet.network() || { allow: [] };
    const target = meantTarget(network, inside);
    const allowed = judgeRequest(network, { ...target, method: "GET" });
    if (!allowed.ok && allowed.reason === "host") {
      this.#outlet.denied({ to: targetText(target), reason: "host", detail: allowed.detail });
      closeWith(visit.socket, inside.port === 443 ? alertBytes("access_denied") : unparsedAnswer(allowed));
      return;
    }
    const hasTunnel = tunnels(network, inside).length > 0;
    if (hasTunnel && lookedInto(network, target).length === 0) return await this.#tunnel(inside, visit);
    if (visit.socket instanceof Socket) visit.socket.setTimeout(BOUNDS.keepAliveMs, () => visit.close());
    const { verdict, bytes } = await bytesUntilVerdict(visit.socket, {
      timeoutMs: BOUNDS.firstBytesTimeoutMs,
      judge: ([first]) => (first === undefined ? null : first === HANDSHAKE_RECORD ? "tls" : "plain"),
    });
    if (verdict === null) return visit.close();
    if (verdict === "plain") return this.#http.serve(visit, inside, bytes);
    visit.socket.unshift(bytes);
    if (hasTunnel) return await this.#tunnel(inside, visit);
    const judged = judgeRequest(network, target);
    if (!judged.ok) this.#outlet.denied({ to: targetText(target), reason: judged.reason, detail: judged.detail });
    closeWith(visit.socket, alertBytes("access_denied"));
  }

  async #tunnel(inside: Target, visit: Visit): Promise<void> {
    await tunnel({ ...this.#tunnelOf(inside, visit), onDialled: null });
  }

  #tunnelOf(target: Target, visit: Visit) {
    const outlet = this.#outlet;
    const rules = () => tunnels(outlet.network() || { allow: [] }, target);
    const onHttp = (first: Buffer): void => this.#http.serve(visit, target, first);
    return { outlet, visit, target, rules, onHttp };
  }

  /** CONNECT through the proxy. The client speaks after the answer. */
  async #connect(visit: Visit, authority: string, behind: Buffer): Promise<void> {
    const { socket } = visit;
    const refuse = (to: string, fault: HeadFault): void => {
      this.#outlet.denied({ ...fault, to });
      closeWith(socket, unparsedAnswer(fault));
    };
    if (socket instanceof Socket) socket.setTimeout(0);
    if (behind.length > 0) socket.unshift(behind);
    const target = /:[0-9]+$/.test(authority) ? readAuthority(authority) : null;
    if (target === null)
      return refuse(shown(authority), { reason: "malformed", detail: "CONNECT must name a host and a port." });
    const judge = () => judgeRequest(this.#outlet.network() || { allow: [] }, target);
    const now = judge();
    const isNew = !now.ok && now.reason === "host" && (await this.#outlet.isGranted(target));
    const judged = isNew ? judge() : now;
    if (!judged.ok) return refuse(targetText(target), judged);
    await tunnel({
      ...this.#tunnelOf(target, visit),
      onDialled(refusal) {
        if (refusal === null) socket.write("HTTP/1.1 200 Connection established\r\n\r\n");
        else closeWith(socket, unparsedAnswer(refusal));
      },
    });
  }
}

/** The open connections of one cell. Each holds a place in the budget from its first moment to its last. */
class Visits {
  readonly #meter: Meter;
  readonly #open = new Set<Visit>();
  #closed = false;

  constructor(meter: Meter) {
    this.#meter = meter;
  }

  /** Null if there is no room; then the socket is closed, after `last` if there is something to say. */
  open(socket: Duplex, last: string): Visit | null {
    // An error closes the socket too, and that is what counts.
    socket.on("error", () => {});
    if (this.#closed || socket.destroyed) {
      socket.destroy();
      return null;
    }
    if (!this.#meter.take("connections", 1)) {
      // It is not waited for, so that those that are too many hold nothing.
      socket.end(last, () => socket.destroy());
      return null;
    }
    const ended = new AbortController();
    const visit: Visit = {
      socket,
      signal: ended.signal,
      isAllowed: () => true,
      close: () => void socket.destroy(),
    };
    this.#open.add(visit);
    socket.once("close", () => {
      this.#open.delete(visit);
      this.#meter.release();
      ended.abort();
    });
    return visit;
  }

  /** Closes those that are no longer allowed. */
  review(): void {
    for (const visit of this.#open) if (!visit.isAllowed()) visit.close();
  }

  /** Closes all, and takes no more. */
  async closeAll(): Promise<void> {
    this.#closed = true;
    const closing = [...this.#open].map(
      (visit) => new Promise((resolve) => visit.signal.addEventListener("abort", resolve)),
    );
    for (const visit of this.#open) visit.close();
    await Promise.all(closing);
  }
}

export interface EgressRequest {
  readonly network: AllowedNetwork;
  /** All addresses of a name, from the host's resolver. An address that is not allowed is not dialled. */
  readonly resolve: (host: string, signal: AbortSignal) => Promise<readonly string[]>;
  /** The value of a secret that a rule names. Rejects with `SecretUnavailable`. */
  readonly secretOf: (name: string, signal: AbortSignal) => Promise<string>;
  /**
   * Asks the user for a host that is not allowed, while the client of the proxy waits. True if it was granted; then {@link Egress.replace}
   * was called. Absent: what is not allowed is refused at once.
   */
  readonly isGranted?: (to: string) => Promise<boolean>;
  /** Called the first time that something is refused, for each host and reason. */
  readonly onDenied?: (denied: DeniedTraffic) => void;
  /**
   * Called when an allowed host is about to be dialled; `isNamed`: by a rule without a wildcard. What it returns is called when that
   * is over; `code`: null if the host answered.
   */
  readonly onDialing?: (target: Target, isNamed: boolean) => (code: string | null) => void;
  /** The caller's budget, from which this cell's traffic is taken too. */
  readonly parent?: Meter;
  /** Certificates, as PEM, that are trusted for hosts that are looked into. Absent: those of Node. */
  readonly ca?: readonly string[];
  /** Prefixes of URLs in the index pages of package registries that are others in the cell. */
  readonly rewrites?: readonly Rewrite[];
}

/** The network of one cell. Disposing closes all its connections within a second. */
export interface Egress extends AsyncDisposable {
  readonly meter: Meter;
  /** Takes over a connection of the cell to a place. Never throws. */
  accept(place: NetworkPlace, socket: Duplex): void;
  /** Another network from now on, after a grant or a revocation. Closes what is no longer allowed. */
  replace(network: AllowedNetwork | false): void;
  report(): NetworkReport;
}

export function openEgress(request: EgressRequest): Egress {
  const ended = new AbortController();
  let network: AllowedNetwork | false = request.network;
  const meter = new Meter(boundedLimits(network), request.parent);
  const traffic = new Traffic(meter, (denied) => request.onDenied?.(denied));
  const visits = new Visits(meter);
  const outlet: Outlet = {
    network: () => network,
    isGranted: async (target) => (await request.isGranted?.(targetText(target))) ?? false,
    denied: (refusal) => traffic.denied(refusal),
    line: (to) => traffic.line(to),
    async dial(target, rules, signal, onread) {
      const dialled = request.onDialing?.(
        target,
        rules.some(({ to }) => !to.startsWith("*.")),
      );
      const judged = await judgedAddresses(target, rules, request.resolve, signal);
      if (!judged.ok) {
        dialled?.(judged.refusal.reason);
        return judged;
      }
      const socket = await dial(judged.addresses, target.port, signal, onread);
      const to = targetText(target);
      dialled?.(socket === null ? "unreachable" : null);
      if (socket === null)
        return { ok: false, refusal: { to, reason: "unreachable", detail: `${to} does not answer.` } };
      traffic.line(to).connected();
      return { ok: true, socket };
    },
  };
  const entrance = new Entrance({
    outlet,
    secrets: new SecretValues((name) => request.secretOf(name, ended.signal)),
    secureContext: createSecureContext(request.ca === undefined ? {} : { ca: [...request.ca] }),
    rewrites: request.rewrites ?? [],
  });
  return {
    meter,
    accept(place, socket) {
      const refusal = { reason: "limit", detail: "Too many connections at once." } as const;
      const visit = visits.open(socket, place.port === 443 ? "" : unparsedAnswer(refusal));
      if (visit !== null) entrance.enter(place, visit);
      else traffic.denied({ ...refusal, to: place.host === null ? "proxy" : `${place.host}:${place.port}` });
    },
    replace(next) {
      network = next;
      if (next !== false) meter.limit(boundedLimits(next));
      visits.review();
    },
    report: () => traffic.report(),
    async [Symbol.asyncDispose]() {
      network = false;
      ended.abort();
      entrance[Symbol.dispose]();
      await visits.closeAll();
    },
  };
}

function boundedLimits({ limits }: AllowedNetwork): NetworkLimits {
  return { connections: BOUNDS.connections, ...limits };
}

/** Called for CONNECT, with the socket and what the client sent behind the request. */
type OnConnect = (visit: Visit, authority: string, behind: Buffer) => void;

/** Node's HTTP parser, strict, for the connections of one cell. It listens nowhere. */
class HttpServer implements Disposable {
  readonly #parts: HttpParts;
  readonly #server: Server;
  readonly #open = new Map<
    Duplex,
    { readonly connection: HttpConnection; readonly visit: Visit; readonly asked: RequestReceiver }
  >();

  constructor(parts: HttpParts, onConnect: OnConnect) {
    this.#parts = parts;
    this.#server = createServer({
      insecureHTTPParser: false,
      maxHeaderSize: BOUNDS.headerBytes,
      headersTimeout: BOUNDS.headersTimeoutMs,
      // Bodies may take long; a silent one is closed by `timeout`.
      requestTimeout: 0,
      keepAliveTimeout: BOUNDS.keepAliveMs,
      connectionsCheckingInterval: 1000,
      requireHostHeader: false,
      noDelay: true,
    });
    this.#server.timeout = BOUNDS.httpIdleMs;
    this.#server.on("request", (request, response) =>
      this.#open.get(request.socket)?.connection.take(request, response, false),
    );
    this.#server.on("checkContinue", (request, response) =>
      this.#open.get(request.socket)?.connection.take(request, response, true),
    );
    this.#server.on("clientError", (error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket) =>
      this.#refuse(error, socket),
    );
    this.#server.on("connect", (request, socket, behind) => {
      const open = this.#open.get(socket);
      // An answer before it would come in between the bytes of the tunnel.
      if (open === undefined || open.asked !== "proxy" || !open.connection.isIdle) {
        open?.connection.refuse({ reason: "method", detail: "CONNECT is refused: this is no proxy." });
        socket.destroy();
        return;
      }
      this.#open.delete(socket);
      onConnect(open.visit, request.url ?? "", behind);
    });
    // Without this, Node does not watch the time that a request takes; with it, until `close`.
    this.#server.emit("listening");
  }

  /** Takes over a connection of the cell, of which `first` has been read. */
  serve(visit: Visit, asked: RequestReceiver, first: Buffer): void {
    const { socket } = visit;
    this.#open.set(socket, { visit, asked, connection: new HttpConnection(this.#parts, visit, asked) });
    visit.signal.addEventListener("abort", () => this.#open.delete(socket), { once: true });
    if (first.length > 0) socket.unshift(first);
    this.#server.emit("connection", socket);
    socket.resume();
  }

  [Symbol.dispose](): void {
    this.#server.close();
  }

  #refuse(error: NodeJS.ErrnoException & { rawPacket?: Buffer }, socket: Duplex): void {
    const open = this.#open.get(socket);
    if (open === undefined || error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy();
      return;
    }
    const fault = parserFault(error);
    open.connection.refuse(fault);
    if (open.connection.isIdle) closeWith(socket, unparsedAnswer(fault));
    else socket.destroy();
  }
}

function parserFault({ code, rawPacket }: NodeJS.ErrnoException & { rawPacket?: Buffer }): HeadFault {
  const detail = rawPacket?.subarray(0, 14).toString("latin1").startsWith("PRI * HTTP/2")
    ? "HTTP/2 without TLS is refused. Use HTTP/1.1."
    : code === "ERR_HTTP_REQUEST_TIMEOUT"
      ? "The request did not come in time."
      : code === "HPE_HEADER_OVERFLOW"
        ? `The headers are longer than ${BOUNDS.headerBytes} bytes.`
        : "The request is no valid HTTP/1.1.";
  return { reason: code === "HPE_HEADER_OVERFLOW" ? "limit" : "malformed", detail };
}
