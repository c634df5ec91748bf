import type { FleetEvent } from "../../fleet/events.ts";
import type { SentEvent } from "./run-events.ts";

/** An event of a fleet as clients get it: what an item printed is in the item itself. */
export function sentFleetEvent(event: FleetEvent, at = new Date().toISOString()): SentEvent {
  switch (event.type) {
    case "started": {
      const { index, key, attempt, machine } = event;
      return { type: "started", at, index, key, attempt, ...(machine === undefined ? {} : { machine }) };
    }
    case "settled": {
      const { index, key, status, run, attempt, exitCode, error, durationMs, changeset = null, machine } = event.result;
      const { retryInMs } = event;
      return {
        type: "settled",
        at,
        index,
        key,
        status,
        run,
        attempt,
        exitCode,
        error,
        durationMs,
        changeset,
        ...(machine === undefined ? {} : { machine }),
        retryInMs,
      };
    }
    default:
      return { ...event, at };
  }
}
