import { changesApplied, outcomeCounts } from "../../audit/records.ts";
import type { ChangesetStore } from "../../changes/store/changeset-store.ts";
import type { Finished } from "../../changes/store/kept-changeset.ts";
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
  const told: ToldFinish[] = [];
  for (const finished of await store.finishInterrupted())
    told.push({ finished, text: finished.ok ? await recorded(finished, stateDir) : failed(finished) });
  return told;
}

async function recorded({ id, changeset, settled }: Finished & { ok: true }, stateDir: string): Promise<string> {
  const changes = settled.map(({ change: { path, kind }, outcome }) => ({ path, kind, outcome }));
  const counts = Object.entries(outcomeCounts(changes)).map(([outcome, count]) => `${count} ${outcome}`);
  const text = `finished applying changeset ${id}, which was interrupted: ${counts.join(", ") || "nothing"}`;
  const trail = await openTrail(stateDir, changeset.project);
  try {
    await trail.append(changesApplied(changeset, changes));
    return text;
  } catch (error) {
    // It is applied, and its beginning was recorded: a failure to record its end is no reason to stop.
    return `${text}; ${(error as Error).message}`;
  } finally {
    await trail.close();
  }
}

function failed({ id, reason }: Finished & { ok: false }): string {
  return `changeset ${id} was interrupted and cannot be finished: ${reason}`;
}
