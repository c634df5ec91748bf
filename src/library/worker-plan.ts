import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { Plan } from "../isolation/plan/plan.ts";
import { Budget, explainRoot } from "../run/explain/explain.ts";
import type { DescribedViolation } from "../run/model/result.ts";
import type { Preview } from "../run/open/preview.ts";

/** The container that a worker would get. The run's ids and its socket are placeholders that no run can have. */
export type WorkerPlan =
  | { readonly ok: true; readonly plan: Plan; readonly notes: readonly string[] }
  /** If `violations` is empty, the worker is fine, and `message` says what else is missing. */
  | { readonly ok: false; readonly violations: readonly DescribedViolation[]; readonly message: string };

/** Takes the same steps as a run. Does not check the workers that it may call. */
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
