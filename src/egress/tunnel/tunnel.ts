import { isIP, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import type { NetworkRule } from "../../sandbox/network/rule.ts";
import { addressStillAllowed } from "../dial/dial.ts";
import {
  beforeSecondHello,
  bytesUntilVerdict,
  type FirstBytes,
  HANDSHAKE_RECORD,
  readFirstBytes,
  ServerStart,
} from "../first/client-hello.ts";
import {
  BOUNDS,
  type HostTraffic,
  type Outlet,
  type Refusal,
  type Target,
  targetText,
  type Visit,
} from "../model/outlet.ts";
import { type Alert, alertBytes, closeWith, DownFlow, pump } from "../traffic/traffic.ts";

/** A tunnel whose host is connected. Bytes of the host flow at once, those of the client after `admit`. */
class OpenTunnel {
  readonly #request: TunnelRequest;
  readonly #upstream: Socket;
  readonly #line: HostTraffic;
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

/**
 * Bytes between a cell and a host. What the client sends is held until it is judged: TLS must name the host, HTTP is looked
 * into, other protocols pass. A host may speak first, so it is dialled without the client's first byte if that is late.
 */
export async function tunnel(request: TunnelRequest): Promise<void> {
  const { outlet, visit, target, rules, onDialled } = request;
  visit.isAllowed = () => rules().length > 0;
  const waits = onDialled !== null;
  let start = waits ? null : readClientStart(visit.socket, target.host);
  const early = await Promise.race([start, start && delay(BOUNDS.clientFirstMs, null)]);
  if (early !== null && !mayPass(request, early)) return;
  const down = new DownFlow();
  const dialled = await outlet.dial(target, rules(), visit.signal, down.onread);
  onDialled?.(dialled.ok ? null : dialled.refusal);
  if (!dialled.ok) {
    outlet.denied(dialled.refusal);
    if (!waits) visit.close();
    return;
  }
  const open = new OpenTunnel(request, dialled.socket, down);
  start ??= readClientStart(visit.socket, target.host);
  const judged = early ?? (await start);
  if (mayPass(request, judged)) await open.admit(judged);
  else open.leave();
}

/** Refuses a client that may not pass, and hands on one that speaks HTTP. */
function mayPass(request: TunnelRequest, start: ClientStart): start is ClientStart & { kind: "tls" | "other" } {
  if (start.kind === "http") request.onHttp(start.bytes);
  else if (start.kind === "refused" || start.kind === "silent") refuseStart(request, start);
  return start.kind === "tls" || start.kind === "other";
}

export interface TunnelRequest {
  readonly outlet: Outlet;
  readonly visit: Visit;
  readonly target: Target;
  /** The rules of the target that are tunnels, as they are now. */
  readonly rules: () => readonly NetworkRule[];
  /** Takes over a client that speaks HTTP in the clear, with what it sent, so that each of its requests is judged. */
  readonly onHttp: (first: Buffer) => void;
  /** Answers a client that waits for that before it speaks (CONNECT). Null: the client may speak first. */
  readonly onDialled: ((refusal: Refusal | null) => void) | null;
}

/** Closes, and says why: as an alert of TLS, if the client speaks that. */
function refuseStart(
  { outlet, visit, target }: Pick<TunnelRequest, "outlet" | "visit" | "target">,
  start: ClientStart & { kind: "refused" | "silent" },
): void {
  const to = targetText(target);
  if (start.kind === "refused") outlet.denied({ to, reason: start.reason, detail: start.detail });
  else if (start.bytes > 0)
    outlet.denied({ to, reason: "malformed", detail: "The client did not finish its first message." });
  if (start.kind === "refused" && start.alert !== null) closeWith(visit.socket, alertBytes(start.alert));
  else visit.close();
}

/** How a client of a tunnel begins, judged. `bytes` is all that it sent so far. */
export type ClientStart =
  /** TLS that names the host: `bytes` up to `helloEnd` may pass, the rest when the server's answer is known. */
  | { readonly kind: "tls"; readonly bytes: Buffer; readonly helloEnd: number }
  | { readonly kind: "http"; readonly bytes: Buffer }
  | { readonly kind: "other"; readonly bytes: Buffer }
  | ({ readonly kind: "refused"; readonly alert: Alert | null } & Pick<Refusal, "reason" | "detail">)
  /** It went away, or said too little in time. */
  | { readonly kind: "silent"; readonly bytes: number };

async function readClientStart(client: Duplex, host: string): Promise<ClientStart> {
  const held = await bytesUntilVerdict(client, {
    timeoutMs: BOUNDS.firstBytesTimeoutMs,
    judge: (bytes, ended) => {
      const first = readFirstBytes(bytes, BOUNDS.firstBytes, BOUNDS.firstLineBytes);
      if (first.kind !== "more") return first;
      return ended ? endedStart(bytes) : null;
    },
  });
  if (held.verdict === null) return { kind: "silent", bytes: held.bytes.length };
  const { bytes, verdict } = held;
  if (verdict.kind === "malformed") return malformed(verdict.why, bytes[0] === HANDSHAKE_RECORD);
  if (verdict.kind === "tls") return helloFault(verdict, host) ?? { kind: "tls", bytes, helloEnd: verdict.length };
  return { kind: verdict.kind, bytes };
}

/** A client that sends nothing more may wait for the server. What it sent is a whole line, also without its end. */
function endedStart(bytes: Buffer): Exclude<FirstBytes, { kind: "more" }> | null {
  if (bytes.length === 0) return { kind: "other" };
  const line = readFirstBytes(Buffer.concat([bytes, Buffer.from("\n")]), BOUNDS.firstBytes, BOUNDS.firstLineBytes);
  return line.kind === "more" ? null : line;
}

/** After a server asked for it, a client sends a second hello, which must name the host too. `start` has what it sent since. */
async function readSecondHello(client: Duplex, start: Buffer, host: string): Promise<ClientStart> {
  const held = await bytesUntilVerdict(client, {
    start,
    timeoutMs: BOUNDS.firstBytesTimeoutMs,
    judge: (bytes) => {
      const skipped = beforeSecondHello(bytes);
      const first = readFirstBytes(bytes.subarray(skipped), BOUNDS.firstBytes - skipped, 0);
      return first.kind === "more" ? null : { first, skipped };
    },
  });
  if (held.verdict === null) return { kind: "silent", bytes: held.bytes.length };
  const { first, skipped } = held.verdict;
  if (first.kind !== "tls") return malformed("it is no second ClientHello", true);
  return helloFault(first, host) ?? { kind: "tls", bytes: held.bytes, helloEnd: skipped + first.length };
}

/** A TLS client must name the host, so that a server of many hosts shows no other one. An address has no name to give. */
function helloFault(hello: { serverName: string | null; encrypted: boolean }, host: string): ClientStart | null {
  const refused = (alert: Alert, detail: string): ClientStart => ({ kind: "refused", reason: "name", alert, detail });
  if (hello.encrypted)
    return refused("access_denied", "The TLS client may hide another name (Encrypted Client Hello). Switch that off.");
  const isAddress = isIP(host.replace(/^\[(.*)\]$/, "$1")) !== 0;
  if (hello.serverName === null && isAddress) return null;
  if (hello.serverName === null)
    return refused("missing_extension", `The TLS client names no host (SNI). It must name ${host}.`);
  if (!isAddress && hello.serverName.toLowerCase() === host) return null;
  return refused("unrecognized_name", `The TLS client names another host (SNI) than ${host}.`);
}

function malformed(why: string, isTls: boolean): ClientStart {
  const detail = `What the client sends is refused: ${why}.`;
  return { kind: "refused", reason: "malformed", alert: isTls ? "decode_error" : null, detail };
}
