import { setTimeout as delay } from "node:timers/promises";
import { DownFlow } from "../carry/down-flow.ts";
import { BOUNDS } from "../model/bounds.ts";
import { type ClientStart, readClientStart } from "./client-start.ts";
import { OpenTunnel } from "./open-tunnel.ts";
import { refuseStart, type TunnelRequest } from "./tunnel-request.ts";

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
