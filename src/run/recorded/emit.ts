import type { AuditTrail } from "../../audit/trail.ts";
import type { Emit } from "../model/events.ts";
import { eventRecord } from "./event-record.ts";

/**
 * Records what happens to runs, and passes it on. Nobody waits for the disk: a run that cannot be recorded goes on, and a
 * person is told once, until a record is written again.
 */
export function recordedEmit(emit: Emit, trail: AuditTrail): Emit {
  let told = false;
  return (event) => {
    const record = eventRecord(event);
    if (record !== null) {
      const { run, root, parent, worker, attachments } = event;
      trail.append(record).then(
        () => {
          told = false;
        },
        (error: Error) => {
          if (told) return;
          told = true;
          emit({ type: "trouble", run, root, parent, worker, attachments, detail: error.message });
        },
      );
    }
    emit(event);
  };
}
