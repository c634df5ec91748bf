import type { NotTaken } from "../model/queue.ts";

/** The answer to an attempt that does not count. `item`: as it is now; while it is `running`, this attempt has begun its effect. */
export function fencedOff(
  index: number,
  attempt: number,
  item: { readonly state: string; readonly attempt: number },
): NotTaken {
  if (item.state === "running" && item.attempt === attempt)
    return { ok: false, code: "fenced", reason: `attempt ${attempt} of item ${index} has begun to change files` };
  const instead = item.state === "queued" ? "the item waits for a retry" : `attempt ${item.attempt} is ${item.state}`;
  return { ok: false, code: "fenced", reason: `attempt ${attempt} of item ${index} no longer counts: ${instead}` };
}

/** The answer to a process that does not own the fleet any more. `isInherited`: see {@link NotTaken}. */
export function takenFrom(index: number, attempt: number, isInherited: boolean): NotTaken {
  const reason = `another process took over the fleet, so this one records nothing of attempt ${attempt} of item ${index}`;
  return { ok: false, code: "taken", reason, isInherited };
}
