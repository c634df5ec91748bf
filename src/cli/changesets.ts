import type { AuditRecord } from "../audit/records.ts";
import { changesApplied } from "../audit/records.ts";
import type { Changeset } from "../changes/changeset.ts";
import type { ChangesetStore } from "../changes/store/changeset-store.ts";
import { currentOwner } from "../isolation/owner.ts";
import { changesetStore } from "../run/changes/into-project.ts";
import { openTrail } from "../run/recorded/open-trail.ts";
import { countsText } from "./changes-text.ts";
import { stateDirFrom } from "./state-dir.ts";
import { say, type Terminal } from "./terminal.ts";

/** The changesets of this state directory. What a process that died had begun to apply is finished first, and told. */
export async function openChangesets(terminal: Terminal): Promise<ChangesetStore> {
  const store = changesetStore(stateDirFrom(terminal.env), currentOwner());
  for (const finished of await store.finishInterrupted()) {
    if (!finished.ok) {
      say(terminal, `corral: changeset ${finished.id} was interrupted and cannot be finished: ${finished.reason}`);
      continue;
    }
    const changes = finished.settled.map(({ change: { path, kind }, outcome }) => ({ path, kind, outcome }));
    await record(finished.changeset, changesApplied(finished.changeset, changes), terminal);
    say(terminal, `corral: finished applying changeset ${finished.id}, which was interrupted: ${countsText(changes)}`);
  }
  return store;
}

/** Writes into the audit trail of the project whose changes they are. */
export async function record({ project }: Changeset, entry: AuditRecord, { env }: Terminal): Promise<void> {
  const trail = await openTrail(stateDirFrom(env), project);
  try {
    await trail.append(entry);
  } finally {
    await trail.close();
  }
}
