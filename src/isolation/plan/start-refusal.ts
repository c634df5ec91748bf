import type { Violation } from "../../sandbox/violation.ts";
import type { Plan } from "./plan.ts";

/**
 * The few errors of an engine that are about the plan and not about the engine: a limit or a runtime that it does not have, and
 * a source that was swapped after the check and cannot be mounted. Null for any other error.
 */
export function refusalFrom(message: string, plan: Plan): Violation | null {
  if (CANNOT_ENFORCE.test(message)) return { code: "ENFORCEMENT_MISSING", missing: [message] };
  // A source that was swapped after the check shows here if it cannot be mounted, else in the verification.
  const isOwn = plan.mounts.some(({ origin, host }) => origin === "corral" && isNamed(host, message));
  if (isOwn || !CANNOT_MOUNT.test(message)) return null;
  const granted = plan.mounts.filter((mount) => mount.origin !== "corral").map((mount) => mount.path);
  const named = granted.filter((path) => message.includes(`"${path}"`) || message.includes(`${path}:`));
  const path = (named.length > 0 ? named : granted).join(", ");
  const reason = "it was removed or replaced while the cell was starting";
  return granted.length === 0 ? null : { code: "MOUNT_SOURCE_REFUSED", path, reason };
}

/** True for the path itself, and not for one that begins like it. */
function isNamed(path: string, message: string): boolean {
  return [`${path}"`, `${path}:`, `${path} `].some((each) => message.includes(each)) || message.endsWith(path);
}

/** Errors for a runtime that the engine does not have, and for limits that are too small for it. */
const CANNOT_ENFORCE = /unknown (or invalid )?runtime|minimum memory limit|cpu[ .]cfs[ _]quota/i;

/** Errors for a mount whose source is gone, or whose mount point is missing and cannot be made. */
const CANNOT_MOUNT =
  /\b(mount|mounting|bind source)\b.*(does not exist|not a directory|no such file or directory|read-only file system)/is;
