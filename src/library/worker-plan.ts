import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { Plan } from "../isolation/plan/plan.ts";
import { Budget, explainRoot } from "../run/explain/explain.ts";
import type { DescribedViolation } from "../run/model/result.ts";
import type { Preview } from "../run/open/preview.ts";

/** A worker's container before there is one. Ids of the run, and its socket, are placeholders that no run can have. */
export type WorkerPlan =
  | { readonly ok: true; readonly plan: Plan; readonly notes: readonly string[] }
  /** `violations` is empty if the worker has no fault; then `message` says what else is missing. */
  | { readonly ok: false; readonly violations: readonly DescribedViolation[]; readonly message: string };

/** By the same steps as the run's own. The workers that it may call are not looked at. */
export async function workerPlan(
  worker: WorkerDefinition,
  policy: string | null,
  preview: Preview,
): Promise<WorkerPlan> {
  const { plan, refused, notes } = await explainRoot(worker, policy, { preview, budget: new Budget(1) });
  if (plan !== null) return { ok: true, plan, notes };
  const violations = refused ?? [];
  const messages = violations.map((violation) => violation.message);
  const missing = preview.unavailable === null ? [] : [preview.unavailable];
  return { ok: false, violations, message: [...messages, ...missing].join("\n") };
}
