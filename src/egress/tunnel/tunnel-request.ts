import type { NetworkRule } from "../../sandbox/network/rule.ts";
import { alertBytes, closeWith } from "../carry/alert.ts";
import { type Outlet, type Target, targetText, type Visit } from "../model/outlet.ts";
import type { Refusal } from "../model/refusal.ts";
import type { ClientStart } from "./client-start.ts";

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
export function refuseStart(
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
