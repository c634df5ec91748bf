import { TooManyChanges } from "../../changes/scan/draft.ts";
import type { Stage } from "../../changes/stage.ts";
import type { CommitAnswer } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import type { RunEnvironment } from "../model/environment.ts";
import type { Job } from "../model/job.ts";
import { reported } from "../model/reported.ts";
import { destinationOf } from "./destination.ts";
import { settleChanges } from "./settle.ts";
import { changesOf } from "./settled-run.ts";

/** Applies what a run has changed so far, and lets it go on. What was not agreed to stays in its view as it is. */
export async function commitSoFar(
  job: Job,
  stage: Stage,
  commit: number,
  env: RunEnvironment,
  signal: AbortSignal,
): Promise<CommitAnswer> {
  const collected = await stage.collectSoFar(changesOf(job, env, commit), signal).catch((error: unknown) => {
    if (error instanceof TooManyChanges)
      throw new ToolRefusal("CHANGES_NOT_TAKEN", `Nothing was applied: ${error.message}.`);
    throw error;
  });
  if (collected === null) return { changes: [], decision: null };
  await using _ = collected;
  const into = destinationOf(job, stage, env);
  // What waits for an answer stays in the view; the end of the run asks about it again.
  const staying = { ...into, keep: async () => {} };
  const { outcomes, decision } = await settleChanges(collected, job, staying, env, signal);
  const applied = outcomes.filter(({ outcome }) => outcome === "applied").map(({ change }) => change.index);
  stage.applied(collected.changeset, new Set(applied));
  return { changes: reported(outcomes), decision };
}
