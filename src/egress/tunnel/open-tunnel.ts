import type { Socket } from "node:net";
import type { DownFlow } from "../carry/down-flow.ts";
import { pump } from "../carry/pump.ts";
import { addressStillAllowed } from "../dial/judged-addresses.ts";
import { ServerStart } from "../first/server-start.ts";
import { BOUNDS } from "../model/bounds.ts";
import { type Line, targetText } from "../model/outlet.ts";
import { type ClientStart, readSecondHello } from "./client-start.ts";
import { refuseStart, type TunnelRequest } from "./tunnel-request.ts";

/** A tunnel whose host is connected. Bytes of the host flow at once, those of the client after `admit`. */
export class OpenTunnel {
  readonly #request: TunnelRequest;
  readonly #upstream: Socket;
  readonly #line: Line;
  readonly #abort = (): void => void this.#upstream.destroy();
  /** Set while the start of a TLS server is awaited. */
  #onServer: ((piece: Buffer) => void) | null = null;

  /** `down` has the bytes of `upstream`. */
  constructor(request: TunnelRequest, upstream: Socket, down: DownFlow) {
    const { outlet, visit, target, rules } = request;
    this.#request = request;
    this.#upstream = upstream;
    this.#line = outlet.line(targetText(target));
    const address = upstream.remoteAddress ?? "";
    visit.isAllowed = () => addressStillAllowed(address, rules());
    visit.socket.allowHalfOpen = true;
    visit.signal.addEventListener("abort", this.#abort, { once: true });
    // The network may have changed while the host was dialled.
    if (visit.signal.aborted || !visit.isAllowed()) this.#abort();
    upstream.once("close", () => visit.close());
    upstream.setTimeout(BOUNDS.tunnelIdleMs, this.#abort);
    down.pump(upstream, visit.socket, (piece) => {
      this.#onServer?.(piece);
      return this.#line.down(piece.length) || this.#overBudget("downloads");
    });
  }

  /** Passes on what the client sent, and then all that it sends. */
  async admit(start: ClientStart & { kind: "tls" | "other" }): Promise<void> {
    let { bytes } = start;
    if (start.kind === "tls") {
      const rest = await this.#second(start.bytes, start.helloEnd);
      if (rest === null) return;
      bytes = rest;
    }
    this.#pass(bytes);
    pump(this.#request.visit.socket, this.#upstream, (piece) => this.#mayPass(piece));
  }

  /** Closes the connection to the host and leaves the client to another. */
  leave(): void {
    this.#upstream.removeAllListeners("close").removeAllListeners("data").removeAllListeners("end").destroy();
    this.#request.visit.signal.removeEventListener("abort", this.#abort);
  }

  /** Sends the hello, and another one if the server asks for it. Returns what may follow; null if nothing may. */
  async #second(bytes: Buffer, helloEnd: number): Promise<Buffer | null> {
    const { visit, target } = this.#request;
    const server = this.#serverStart();
    this.#pass(bytes.subarray(0, helloEnd));
    const rest = bytes.subarray(helloEnd);
    if ((await server) === "other") return rest;
    const again = await readSecondHello(visit.socket, rest, target.host);
    if (again.kind === "tls") return again.bytes;
    if (again.kind !== "http" && again.kind !== "other") refuseStart(this.#request, again);
    return null;
  }

  #serverStart(): Promise<"retry" | "other"> {
    const start = new ServerStart();
    return new Promise((resolve) => {
      this.#onServer = (piece) => {
        const said = start.feed(piece);
        if (said === null) return;
        this.#onServer = null;
        resolve(said);
      };
    });
  }

  #pass(bytes: Buffer): void {
    if (bytes.length > 0 && this.#mayPass(bytes)) this.#upstream.write(bytes);
  }

  #mayPass(piece: Buffer): boolean {
    return this.#line.up(piece.length) || this.#overBudget("uploads");
  }

  #overBudget(what: string): false {
    const { outlet, visit, target } = this.#request;
    outlet.denied({ to: targetText(target), reason: "limit", detail: `The budget for ${what} is used up.` });
    visit.close();
    return false;
  }
}
