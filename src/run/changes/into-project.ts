import { type AuditRecord, changesApplied, changesApplying, changesDiscarded } from "../../audit/records.ts";
import { type AuditTrail, AuditTrailError } from "../../audit/trail.ts";
import { only } from "../../changes/model/changeset.ts";
import { ChangesetStore } from "../../changes/store/changeset-store.ts";
import { lockOwner } from "../../state/owner.ts";
import type { KeptChangesets, Outcome } from "../model/reported.ts";

/** The store of a state directory, as this process works on it. */
export function changesetStore(stateDir: string): ChangesetStore {
  return new ChangesetStore(stateDir, lockOwner());
}

/** The changes of root runs: applied from the store, and written down before and after. */
export function intoProject(store: ChangesetStore, audit: AuditTrail): KeptChangesets {
  return {
    keep: async (changeset, state, reason) => await store.keep(changeset, state, reason),
    async apply(changeset, indexes) {
      const changes = changeset.changes.filter(({ index }) => indexes.has(index));
      // On the disk before the first file is touched; if it cannot be written, nothing is applied and nothing is lost.
      if (!(await isWritten(audit, changesApplying(changeset, changes)))) {
        await store.keep(only(changeset, indexes), "held", UNRECORDED);
        return changes.map((change): Outcome => ({ change, outcome: "held", reason: UNRECORDED }));
      }
      const outcomes = await store.apply(changeset, indexes);
      // The changes are applied. If this record fails, that of the run's end fails too, and that is reported.
      const done = outcomes.map(({ change: { path, kind }, outcome }) => ({ path, kind, outcome }));
      await isWritten(audit, changesApplied(changeset, done));
      return outcomes;
    },
    async withdraw(id) {
      const kept = await store.load(id);
      if (!kept.ok || !(await store.discard(id)).ok) return;
      // It is gone. If this record fails, those of the next attempt fail too, and that is reported.
      await isWritten(audit, changesDiscarded(kept.changeset, only(kept.changeset, kept.waiting).changes));
    },
  };
}

const UNRECORDED = "it could not be recorded in the audit trail, and nothing is applied unrecorded";

async function isWritten(audit: AuditTrail, record: AuditRecord): Promise<boolean> {
  try {
    await audit.append(record);
    return true;
  } catch (error) {
    if (!(error instanceof AuditTrailError)) throw error;
    return false;
  }
}

/** For a project in which nothing runs. */
export const noChangesets: KeptChangesets = {
  keep: async () => {},
  apply: async () => [],
  withdraw: async () => {},
};
