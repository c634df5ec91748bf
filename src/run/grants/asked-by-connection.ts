import { bugText } from "../../platform/bug-text.ts";
import type { DeniedTraffic } from "../../sandbox/network/report.ts";
import type { Grantee } from "../model/grantee.ts";
import { parseAskedHost } from "./asked-host.ts";
import { judgedNow, requestHost } from "./request-host.ts";
import type { GrantSurroundings } from "./terms.ts";

/** The most hosts that the connections of one run ask for by themselves. */
const MAX_ASKED = 64;

const WHY = "a program in its container tried to connect";

/**
 * Asks for the host of a connection that was refused, if the run may be granted it. The connection itself stays refused: a person
 * may answer long after its program has given up. Each host is asked for once. A question that is open when `signal` is aborted
 * is withdrawn.
 */
export function asksByConnection(
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
  trouble: (detail: string) => void,
): (denied: Pick<DeniedTraffic, "to" | "reason">) => void {
  const asked = new Set<string>();
  return ({ to: host, reason }) => {
    const parsed = parseAskedHost(host);
    if (reason !== "host" || !parsed.ok || asked.has(parsed.to) || asked.size >= MAX_ASKED || signal.aborted) return;
    const judged = judgedNow(parsed.to, grantee);
    if (!judged.ok || judged.had) return;
    asked.add(parsed.to);
    requestHost({ host, why: WHY }, grantee, around, signal).catch((error) => {
      if (!signal.aborted) trouble(`internal error in a request for a host: ${bugText(error)}`);
    });
  };
}
