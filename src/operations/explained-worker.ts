import type { Project } from "../declarations/project.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { type Explanation, explain } from "../run/explain/explain.ts";
import { openPreview } from "../run/open/preview.ts";
import type { Machine } from "./machine.ts";

/**
 * What a worker and all that it may call would get, and what took away the rest. Runs nothing; without an Engine it has
 * no plans.
 *
 * @throws UnknownPolicyError
 */
export async function explainWorker(
  worker: WorkerDefinition,
  { project, policy, ...machine }: Machine & { readonly project: Project; readonly policy: string | null },
): Promise<Explanation> {
  return await explain(worker, policy, await openPreview(project, machine));
}
