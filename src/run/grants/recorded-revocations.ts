import type { AuditTrail } from "../../audit/trail.ts";
import type { GrantRecord } from "../granted/record.ts";
import type { Emit } from "../model/events.ts";

/** Writes down each grant that a person took back. It is taken back whether or not that can be written down. */
export function recordedRevocations(audit: AuditTrail, emit: Emit): (record: GrantRecord) => Promise<void> {
  return async ({ id, run, root, worker, directory }) => {
    const reason = "it was taken back by hand";
    try {
      await audit.append({ type: "grant_revoked", run, root, worker, grant: id, directory, reason });
    } catch (error) {
      emit({ type: "trouble", run, root, parent: null, worker, attachments: [], detail: (error as Error).message });
    }
  };
}
