import PQueue from "p-queue";
import { TooManyChanges } from "../../changes/scan/draft.ts";
import type { Stage } from "../../changes/stage.ts";
import type { CommitAnswer } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { destinationOf, settleChanges } from "../changes/settle.ts";
import { changesOf } from "../changes/settled-run.ts";
import type { Consent, Declared, Destinations, Records } from "../model/environment.ts";
import type { Job } from "../model/job.ts";
import { reported } from "../model/reported.ts";

/** Each is recorded in the audit trail with its changes. */
const MAX_COMMITS = 500;

/**
 * The commits of one session, one after another: each is compared with the state after the previous one. Each applies
 * the changes so far for which there is consent.
 */
export function commitsOf(job: Job, stage: Stage, env: Declared & Consent & Destinations & Pick<Records, "masking">) {
  const queue = new PQueue({ concurrency: 1 });
  // The session's end counts as the first.
  let count = 1;
  return async (signal: AbortSignal): Promise<CommitAnswer> =>
    await queue.add(async () => {
      signal.throwIfAborted();
      if (count > MAX_COMMITS) throw new ToolRefusal("COMMIT_LIMIT", TOO_MANY);
      count += 1;
      return await commitSoFar(job, stage, count, env, signal);
    });
}

const TOO_MANY = `A run commits at most ${MAX_COMMITS} times; the rest is applied at its end.`;

/** Applies the changes of a run so far, for which there is consent; the run continues. The rest stays in its view. */
async function commitSoFar(
  job: Job,
  stage: Stage,
  commit: number,
  env: Declared & Consent & Destinations & Pick<Records, "masking">,
  signal: AbortSignal,
): Promise<CommitAnswer> {
  const collected = await stage
    .collectSoFar(changesOf(job, env, commit), { signal, search: env.masking.search(job.root) })
    .catch((error: unknown) => {
      if (error instanceof TooManyChanges)
        throw new ToolRefusal("CHANGES_NOT_TAKEN", `Nothing was applied: ${error.message}.`);
      throw error;
    });
  if (collected === null) return { changes: [], decision: null };
  await using _ = collected;
  const into = destinationOf(job, stage, env);
  // What was not approved stays in the view; it is asked about again at the end of the run.
  const staying = { ...into, keep: async () => {} };
  const { outcomes, decision } = await settleChanges(collected, job, staying, env, signal);
  const applied = outcomes.filter(({ outcome }) => outcome === "applied").map(({ change }) => change.index);
  stage.applied(collected.changeset, new Set(applied));
  return { changes: reported(outcomes), decision };
}
