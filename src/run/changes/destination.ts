import { applyChangeset } from "../../changes/apply/apply.ts";
import type { Stage } from "../../changes/stage.ts";
import type { Changesets } from "../model/changesets.ts";
import type { RunEnvironment } from "../model/environment.ts";
import type { Job } from "../model/job.ts";

/**
 * Where a run's changes go. A called run's land in its caller's view, which goes away with the caller: nothing of them
 * waits for anybody. Where the caller has no view they change the project itself, and are applied and recorded as such.
 */
export function destinationOf(
  { parent }: Pick<Job, "parent">,
  stage: Pick<Stage, "logDir" | "reachesProject">,
  { changesets }: Pick<RunEnvironment, "changesets">,
): Changesets {
  if (parent === null) return changesets;
  const { logDir, reachesProject } = stage;
  return {
    keep: async () => {},
    apply: async (changeset, indexes) =>
      reachesProject
        ? await changesets.apply(changeset, indexes)
        : await applyChangeset(changeset, indexes, { logDir }),
  };
}
