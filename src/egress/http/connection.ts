import type { ClientRequestArgs, Agent as HttpAgent, IncomingMessage, ServerResponse } from "node:http";
import { isIP, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { connect, type SecureContext, type TLSSocket } from "node:tls";
import { Agent } from "../../platform/http.ts";
import { judgeRequest, rulesFor } from "../../sandbox/network/judge.ts";
import { type AllowedNetwork, isLookedInto, type NetworkRule } from "../../sandbox/network/rule.ts";
import { addressStillAllowed } from "../dial/dial.ts";
import { BOUNDS, meantTarget, type Outlet, type Target, targetText, type Visit } from "../model/outlet.ts";
import { exchange, type Replacement } from "./exchange.ts";
import {
  answerFault,
  Faulty,
  type HeadFault,
  overrideFault,
  type RequestHead,
  type RequestReceiver,
  readAuthority,
  readRequestHead,
  type SecretValues,
} from "./heads.ts";

/** The connections to hosts of one connection of the cell: one at a time, which is kept for its next request. */
class Upstreams {
  #agent: KeptOne | null = null;
  #key = "";

  /** An agent for this host. Requests with the same `key` may share a connection; `open` makes it. */
  agentFor(key: string, open: () => Promise<Duplex>): HttpAgent {
    if (key !== this.#key) this.close();
    this.#key = key;
    this.#agent ??= new KeptOne();
    this.#agent.open = open;
    return this.#agent;
  }

  /** Also ends requests that are under way. */
  close(): void {
    this.#agent?.destroy();
    this.#agent = null;
  }
}

class KeptOne extends Agent {
  open: () => Promise<Duplex> = () => Promise.reject(new Error("no host"));

  constructor() {
    super({ keepAlive: true, maxSockets: 1, maxFreeSockets: 1, timeout: BOUNDS.upstreamKeepAliveMs });
  }

  override createConnection(
    _options: ClientRequestArgs,
    done?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    this.open().then(
      (socket) => done?.(null, socket),
      (error: Error) => done?.(error, undefined as unknown as Duplex),
    );
  }
}

/** What the HTTP connections of a cell share. */
export interface HttpParts {
  readonly outlet: Outlet;
  readonly secrets: SecretValues;
  readonly secureContext: SecureContext;
  readonly rewrites: readonly Replacement[];
}

/** The request that is under way, for a network that changes meanwhile. */
interface Current {
  readonly head: RequestHead;
  readonly target: Target;
  readonly rule: NetworkRule;
  /** Of the host; absent until it is connected. */
  address?: string;
}

/** One connection of a cell on which it speaks HTTP. Its requests are judged and answered one after the other. */
export class HttpConnection {
  readonly #parts: HttpParts;
  readonly #visit: Visit;
  readonly #asked: RequestReceiver;
  readonly #upstreams = new Upstreams();
  #turn: Promise<void> = Promise.resolve();
  #waiting = 0;
  #current: Current | null = null;

  constructor(parts: HttpParts, visit: Visit, asked: RequestReceiver) {
    this.#parts = parts;
    this.#visit = visit;
    this.#asked = asked;
    visit.isAllowed = () => this.#isAllowed();
    visit.signal.addEventListener("abort", () => this.#upstreams.close(), { once: true });
  }

  /** Takes a request after those before it have been answered. */
  take(request: IncomingMessage, response: ServerResponse, waits: boolean): void {
    request.on("error", () => {});
    response.on("error", () => {});
    this.#waiting += 1;
    if (this.#waiting > BOUNDS.pipelined) {
      this.#denied(this.#place(), {
        reason: "limit",
        detail: "The client sends too many requests ahead of their answers.",
      });
      this.#visit.close();
      return;
    }
    this.#turn = this.#turn.then(async () => {
      const fault = await this.#answer(request, response, waits).catch(() => null);
      this.#current = null;
      this.#waiting -= 1;
      if (fault !== null) answerFault(response, fault);
      else if (!response.writableEnded) response.destroy();
    });
  }

  /** Says that what came is no HTTP request. */
  refuse(fault: HeadFault): void {
    this.#denied(this.#place(), fault);
  }

  get isIdle(): boolean {
    return this.#waiting === 0;
  }

  async #answer(request: IncomingMessage, response: ServerResponse, waits: boolean): Promise<HeadFault | null> {
    const { outlet, secrets, rewrites } = this.#parts;
    const head = readRequestHead(request, this.#asked);
    if (outlet.network() === false || this.#visit.signal.aborted) return null;
    if ("reason" in head) return this.#denied(this.#place(), head);
    await this.#askFor(head);
    const network = outlet.network();
    if (network === false || this.#visit.signal.aborted) return null;
    const target = meantTarget(network, head.inside);
    const rule = judged(network, target, head);
    if ("reason" in rule) return this.#denied(target, rule);
    const line = outlet.line(targetText(target));
    if (!line.request())
      return this.#denied(target, { reason: "limit", detail: "The budget for requests is used up." });
    if (!line.up(head.bytes))
      return this.#denied(target, { reason: "limit", detail: "The budget for uploads is used up." });
    const set = await this.#valuesOf(rule);
    if (!(set instanceof Map)) return this.#denied(target, set);
    const current = { head, target, rule };
    this.#current = current;
    const isSecure = target.port !== 80 && (isLookedInto(rule) ? rule.tls !== false : target.port === 443);
    const { redactor } = secrets;
    const replacements = rule.packages === undefined || rule.artifacts !== undefined ? [] : rewrites;
    const fault = await exchange({
      head,
      target,
      rule,
      line,
      request,
      response,
      waits,
      set,
      redactor,
      replacements,
      secure: isSecure,
      whole: redactor !== null || rule.artifacts !== undefined || replacements.length > 0,
      urls: (text) => insideUrls(network, text),
      agent: this.#upstreams.agentFor(JSON.stringify([target, isSecure, rule.addresses]), () =>
        this.#open(current, isSecure),
      ),
    });
    // What fails because the client has gone is no fault of the host.
    return fault === null || this.#visit.signal.aborted ? null : this.#denied(target, fault);
  }

  /** A host that only the proxy knows of may be granted while its client waits. */
  async #askFor(head: RequestHead): Promise<void> {
    const { outlet } = this.#parts;
    const network = outlet.network();
    if (this.#asked !== "proxy" || network === false) return;
    const target = meantTarget(network, head.inside);
    const rule = judged(network, target, head);
    if ("reason" in rule && rule.reason === "host") await outlet.isGranted(target);
  }

  /** A connection to the host of the current request. */
  async #open(current: Current, isSecure: boolean): Promise<Duplex> {
    const { outlet, secureContext } = this.#parts;
    const { target, rule } = current;
    const dialled = await outlet.dial(target, [rule], this.#visit.signal);
    if (!dialled.ok) throw new Faulty(dialled.refusal);
    const { socket } = dialled;
    current.address = socket.remoteAddress ?? "";
    this.#visit.signal.addEventListener("abort", () => socket.destroy(), { once: true });
    if (this.#visit.signal.aborted || !this.#isAllowed()) {
      socket.destroy();
      throw new Faulty({ reason: "host", detail: `${targetText(target)} is no longer allowed.` });
    }
    // It was paused, and Node's client reads only what flows.
    if (!isSecure) return socket.resume();
    const secured = await secure(socket, target.host, secureContext);
    if (!secured.ok) throw new Faulty(secured.fault);
    return secured.socket;
  }

  async #valuesOf({ set = {} }: NetworkRule): Promise<Map<string, string> | HeadFault> {
    const values = new Map<string, string>();
    for (const [header, { secret }] of Object.entries(set)) {
      const value = await this.#parts.secrets.value(secret).catch(() => null);
      if (value === null) return { reason: "secret", detail: `The secret ${secret} is not available.` };
      values.set(header, value);
    }
    return values;
  }

  /** False if a changed network does not allow the current request, or would send it with other headers. */
  #isAllowed(): boolean {
    const network = this.#parts.outlet.network();
    if (network === false) return false;
    if (this.#current === null) {
      this.#upstreams.close();
      return true;
    }
    const { head, target, rule, address } = this.#current;
    const now = judged(network, target, head);
    if ("reason" in now || boundsOf(now) !== boundsOf(rule)) return false;
    return address === undefined || addressStillAllowed(address, [now]);
  }

  #denied(to: Target | string, fault: HeadFault): HeadFault {
    this.#parts.outlet.denied({ ...fault, to: typeof to === "string" ? to : targetText(to) });
    return fault;
  }

  #place(): Target | string {
    const network = this.#parts.outlet.network();
    if (this.#asked === "proxy") return "proxy";
    return network === false ? this.#asked : meantTarget(network, this.#asked);
  }
}

/** The rule that allows the request, or why none does. */
function judged(network: AllowedNetwork, target: Target, head: RequestHead): NetworkRule | HeadFault {
  const { method, path } = head;
  const judgement = judgeRequest(network, { ...target, method, path });
  if (!judgement.ok) return { reason: judgement.reason, detail: judgement.detail };
  const { rule } = judgement;
  if (rule.artifacts !== undefined && (path.includes("?") || head.body !== 0 || !["GET", "HEAD"].includes(method)))
    return {
      reason: "path",
      detail: "Only plain downloads of files of the lock file are allowed: without a query and a body.",
    };
  return overrideFault(head, rule) ?? rule;
}

function boundsOf({ set, without, artifacts }: NetworkRule): string {
  return JSON.stringify([set, without, artifacts]);
}

/** `https://` URLs of hosts that are looked into, as the cell writes them; other texts as they are. */
function insideUrls(network: AllowedNetwork, text: string): string {
  return text.replaceAll(/https:\/\/([^\s/?#"'<>,;]+)/gi, (url, rawAuthority: string) => {
    const target = readAuthority(rawAuthority, 443);
    if (target === null) return url;
    const rules = rulesFor(network, target.host, target.port);
    if (rules.length === 0 || !rules.every(isLookedInto)) return url;
    return `http://${target.host}${target.port === 443 ? "" : `:${target.port}`}`;
  });
}

export type Secured =
  | { readonly ok: true; readonly socket: TLSSocket }
  | { readonly ok: false; readonly fault: HeadFault };

/** Speaks TLS with a host over a connection to one of its addresses. The host's certificate must be valid for its name. */
function secure(socket: Socket, host: string, secureContext: SecureContext): Promise<Secured> {
  const name = host.replace(/^\[(.*)\]$/, "$1");
  return new Promise((resolve) => {
    const secured = connect({
      socket,
      secureContext,
      host: name,
      ALPNProtocols: ["http/1.1"],
      ...(isIP(name) === 0 && { servername: name }),
    });
    const fail = (why: string): void => {
      clearTimeout(timer);
      secured.destroy();
      resolve({ ok: false, fault: { reason: "unreachable", detail: `TLS with ${host} failed (${why}).` } });
    };
    const timer = setTimeout(fail, BOUNDS.dialTimeoutMs, "it took too long");
    // The code of a fault is of Node's or OpenSSL's lists; its message may repeat what the host sent.
    secured.on("error", (error: NodeJS.ErrnoException) => fail(error.code ?? "the connection was closed"));
    socket.once("close", () => fail("the connection was closed"));
    secured.once("secureConnect", () => {
      clearTimeout(timer);
      resolve({ ok: true, socket: secured });
    });
  });
}
