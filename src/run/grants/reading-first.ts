import { readAfterApproval } from "../../sandbox/sandbox.ts";
import type { Violation } from "../../sandbox/violation.ts";
import { covers } from "../../sandbox/virtual-path.ts";
import type { Grantee } from "../model/grantee.ts";
import { requestGrant } from "./request.ts";
import type { GrantSurroundings } from "./terms.ts";

/**
 * Asks, before a command starts, for every directory of its own whose reading needs consent: its container is made once and
 * shows nothing later. What is blocked is not asked for and not shown. Returns what the user did not agree to.
 */
export async function readingRefused(
  grantee: Grantee,
  around: GrantSurroundings,
  signal: AbortSignal,
): Promise<Violation[]> {
  const waiting = readAfterApproval(grantee.sandbox);
  const outer = waiting.filter((path) => !waiting.some((other) => other !== path && covers(other, path)));
  for (const path of outer) {
    const need = { path, mode: "read", why: "to run its command with this directory", lastingOnly: true } as const;
    const outcome = await requestGrant(need, grantee, around, signal);
    if (!outcome.ok) return [{ code: "READ_NOT_APPROVED", path, reason: outcome.refusal.because }];
    if (outcome.scope === "once")
      return [{ code: "READ_NOT_APPROVED", path, reason: "It was approved for one operation only." }];
  }
  return [];
}
