import type { AuditRecord } from "../../audit/records.ts";
import type { Changeset } from "../../changes/model/changeset.ts";
import type { ChangesetStore } from "../../changes/store/changeset-store.ts";
import { finishInterrupted } from "../../run/changes/finish-interrupted.ts";
import { changesetStore } from "../../run/changes/into-project.ts";
import { openTrail } from "../../run/recorded/open-trail.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { say, type Terminal } from "../terminal/terminal.ts";

/** The changesets of this state directory. What a process that died had begun to apply is finished first, and told. */
export async function openChangesets(terminal: Terminal): Promise<ChangesetStore> {
  const store = changesetStore(stateDirFrom(terminal.env));
  for (const { text } of await finishInterrupted(store, stateDirFrom(terminal.env))) say(terminal, `corral: ${text}`);
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
