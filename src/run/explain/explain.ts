import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { Preview } from "../open/preview.ts";
import { Budget } from "./budget.ts";
import { type ExplainedRun, explainRoot } from "./explained-run.ts";

/** What a worker would get, run by itself, and what each worker below it would get through the calls that it may make. */
export interface Explanation {
  readonly worker: string;
  readonly tree: ExplainedRun;
  /** What holds for the whole of it. */
  readonly notes: readonly string[];
}

/** More runs than a person reads; a tree of calls can branch without end. */
const MAX_RUNS = 10_000;

/** Starts no container, and asks nobody. `policy`: in place of the project's. */
export async function explain(worker: WorkerDefinition, policy: string | null, preview: Preview): Promise<Explanation> {
  const budget = new Budget(MAX_RUNS);
  const tree = await explainRoot(worker, policy, { preview, budget });
  const notes = [
    "Attachments, and what a caller takes away for one call, are not known before a run: each attachment is one more read-only file below /attachments.",
  ];
  if (preview.unavailable !== null)
    notes.push(`There are no plans, as no container could be made: ${preview.unavailable}`);
  if (budget.cut) notes.push(`Only the first ${MAX_RUNS} runs are shown.`);
  return { worker: worker.name, tree, notes };
}
