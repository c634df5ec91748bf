import { type AuditRecord, changesApplied, outcomeCounts } from "../../audit/records.ts";
import { auditKey, recordsBack } from "../../audit/seal.ts";
import type { AuditTrail } from "../../audit/trail.ts";
import type { Settled } from "../../changes/apply/fitness.ts";
import type { Changeset } from "../../changes/model/changeset.ts";
import type { RecordApplied } from "../../changes/store/apply-kept.ts";
import type { ChangesetStore } from "../../changes/store/changeset-store.ts";
import type { Finished } from "../../changes/store/kept-folder.ts";
import { loadSealKey } from "../../state/owner.ts";
import { projectPaths } from "../../state/state-paths.ts";
import { openTrail } from "../recorded/open-trail.ts";

/** One application that was finished in place of a process that died, or that could not be finished. */
export interface ToldFinish {
  readonly finished: Finished;
  /** For people. */
  readonly text: string;
}

/**
 * Finishes applying what dead processes had begun to apply, in any project of the state directory, and records it in the
 * audit trail of the project whose changes they are.
 */
export async function finishInterrupted(store: ChangesetStore, stateDir: string): Promise<ToldFinish[]> {
  const troubles = new Map<string, string>();
  const record: RecordApplied = async (changeset, settled, how) => {
    const trail = await openTrail(stateDir, changeset.project);
    try {
      await recordingApplied(stateDir, trail)(changeset, settled, how);
    } catch (error) {
      // It is applied, and its beginning was recorded: a failure to record its end is no reason to stop.
      troubles.set(changeset.id, `; ${(error as Error).message}`);
    } finally {
      await trail.close();
    }
  };
  const all = await store.finishInterrupted({ record });
  return all.map((finished) => {
    const text = finished.ok ? `${finishedText(finished)}${troubles.get(finished.id) ?? ""}` : failed(finished);
    return { finished, text };
  });
}

/** `by`: who applies it. One that was interrupted may be in the trail already: its process died after that. */
export function recordingApplied(stateDir: string, trail: Pick<AuditTrail, "append">, by?: string): RecordApplied {
  return async (changeset, settled, { resumed }) => {
    if (resumed && (await isRecorded(changeset, stateDir))) return;
    await trail.append(appliedOf(changeset, settled, resumed ? undefined : by));
  };
}

export function appliedOf(changeset: Changeset, settled: readonly Settled[], by?: string): AuditRecord {
  const changes = settled.map(({ change: { path, kind }, outcome }) => ({ path, kind, outcome }));
  return changesApplied(changeset, changes, by);
}

/** Whether the newest application of this changeset has an end in the trail. */
async function isRecorded(
  { id, project }: { readonly id: string; readonly project: string },
  stateDir: string,
): Promise<boolean> {
  const key = auditKey(await loadSealKey(stateDir), project);
  for await (const lines of recordsBack(projectPaths(stateDir, project).trail, key)) {
    for (const { record } of lines) {
      if (record === null || !("changeset" in record) || record.changeset !== id) continue;
      if (record.type === "changes_applied") return true;
      if (record.type === "changes_applying") return false;
    }
  }
  return false;
}

function finishedText({ id, settled }: Finished & { ok: true }): string {
  const counts = Object.entries(outcomeCounts(settled)).map(([outcome, count]) => `${count} ${outcome}`);
  return `finished applying changeset ${id}, which was interrupted: ${counts.join(", ") || "nothing"}`;
}

function failed({ id, reason }: Finished & { ok: false }): string {
  return `changeset ${id} was interrupted and cannot be finished: ${reason}`;
}
