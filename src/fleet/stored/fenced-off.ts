import type { Taken } from "../model/queue.ts";

/** The answer to an attempt that does not count. `item`: as it is now; while it is `running`, this attempt has begun its effect. */
export function fencedOff(
  index: number,
  attempt: number,
  item: { readonly state: string; readonly attempt: number },
): Taken {
  if (item.state === "running" && item.attempt === attempt)
    return { ok: false, code: "fenced", reason: `attempt ${attempt} of item ${index} has begun to change files` };
  const instead = item.state === "queued" ? "the item waits for a retry" : `attempt ${item.attempt} is ${item.state}`;
  return { ok: false, code: "fenced", reason: `attempt ${attempt} of item ${index} no longer counts: ${instead}` };
}
