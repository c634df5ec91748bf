import { bugText } from "../../platform/bug-text.ts";
import type { Grantee } from "../model/grantee.ts";
import { parseAskedHost } from "./asked-host.ts";
import { judgedNow, requestHost } from "./request-host.ts";
import type { GrantSurroundings } from "./terms.ts";

/** The most hosts that the connections of one run ask for by themselves. */
const MAX_ASKED = 64;

const WHY = "a program in its container tried to connect";

/**
 * Asks for the host of a connection, if the run may be granted it. Each host is asked for once, and every connection to it gets the
 * same answer: true if the host was granted. A question that is open when `signal` is aborted is withdrawn. Never rejects.
 */
export function asksByConnection(
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
  trouble: (detail: string) => void,
): (to: string) => Promise<boolean> {
  const asked = new Map<string, Promise<boolean>>();
  const ask = async (host: string): Promise<boolean> => {
    try {
      return (await requestHost({ host, why: WHY }, grantee, around, signal)).ok;
    } catch (error) {
      if (!signal.aborted) trouble(`internal error in a request for a host: ${bugText(error)}`);
      return false;
    }
  };
  return async (host) => {
    const parsed = parseAskedHost(host);
    if (!parsed.ok) return false;
    const known = asked.get(parsed.to);
    if (known !== undefined) return await known;
    const judged = judgedNow(parsed.to, grantee);
    if (asked.size >= MAX_ASKED || signal.aborted || !judged.ok || judged.had) return false;
    const answer = ask(parsed.to);
    asked.set(parsed.to, answer);
    return await answer;
  };
}
