import { codeOf } from "../../platform/errno.ts";
import { EngineUnavailableError, type UnavailableReason } from "./engine.ts";

const AWAY: ReadonlySet<UnavailableReason> = new Set(["no_socket", "refused", "timeout"]);
const BROKEN: ReadonlySet<string> = new Set(["ECONNREFUSED", "ECONNRESET", "EPIPE", "EHOSTUNREACH", "ENETUNREACH"]);
const MAX_CAUSES = 5;

/** Whether an Engine may answer later: none was there, or it ended while it was asked. A wrong setting and a missing right stay. */
export function isEngineAway(error: unknown): boolean {
  let each: unknown = error;
  for (let depth = 0; depth < MAX_CAUSES && each instanceof Error; depth += 1) {
    if (each instanceof EngineUnavailableError && AWAY.has(each.reason)) return true;
    const code = codeOf(each) ?? "";
    if (BROKEN.has(code) || (code === "ENOENT" && (each as NodeJS.ErrnoException).syscall === "connect")) return true;
    each = each.cause;
  }
  return false;
}
