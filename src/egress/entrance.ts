import { Socket } from "node:net";
import { judgeRequest } from "../sandbox/network/judge.ts";
import type { NetworkPlace } from "../sandbox/network/places.ts";
import { alertBytes, closeWith } from "./carry/alert.ts";
import { HANDSHAKE_RECORD } from "./first/client-hello.ts";
import { heldBytes } from "./first/held-bytes.ts";
import type { HttpParts } from "./http/connection.ts";
import { type Fault, rawAnswer } from "./http/fault.ts";
import { HttpServer } from "./http/http-server.ts";
import { readAuthority } from "./http/request-head.ts";
import { BOUNDS } from "./model/bounds.ts";
import { lookedInto, targetInside, tunnels } from "./model/meaning.ts";
import { type Outlet, type Target, targetText, type Visit } from "./model/outlet.ts";
import { shown } from "./model/refusal.ts";
import { tunnel } from "./tunnel/tunnel.ts";

/** Decides what a new connection of a cell is: a tunnel, HTTP that is looked into, or refused. */
export class Entrance implements Disposable {
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
    const target = targetInside(network, inside);
    const allowed = judgeRequest(network, { ...target, method: "GET" });
    if (!allowed.ok && allowed.reason === "host") {
      this.#outlet.denied({ to: targetText(target), reason: "host", detail: allowed.detail });
      closeWith(visit.socket, inside.port === 443 ? alertBytes("access_denied") : rawAnswer(allowed));
      return;
    }
    const hasTunnel = tunnels(network, inside).length > 0;
    if (hasTunnel && lookedInto(network, target).length === 0) return await this.#tunnel(inside, visit);
    if (visit.socket instanceof Socket) visit.socket.setTimeout(BOUNDS.keepAliveMs, () => visit.close());
    const { verdict, bytes } = await heldBytes(visit.socket, {
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
    const refuse = (to: string, fault: Fault): void => {
      this.#outlet.denied({ ...fault, to });
      closeWith(socket, rawAnswer(fault));
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
        else closeWith(socket, rawAnswer(refusal));
      },
    });
  }
}
