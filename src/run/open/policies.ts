import { loadPolicy } from "../../declarations/policy/policy.ts";
import type { Project } from "../../declarations/project.ts";
import type { Policy } from "../../sandbox/policy.ts";

/** Reads each policy once, so that all runs of a project see the same. */
export function policiesOf(project: Project): (name: string) => Promise<Policy> {
  const dirs = project.policiesDir === null ? [] : [project.policiesDir];
  const loaded = new Map<string, Promise<Policy>>();
  return (name) => {
    const policy = loaded.get(name) ?? loadPolicy(name, { dirs });
    loaded.set(name, policy);
    return policy;
  };
}

/** Before anything runs: a call that names a policy which does not exist would fail in the middle of its tree. */
export async function policiesExist(project: Project, policyNamed: (name: string) => Promise<Policy>): Promise<void> {
  const named = [...project.workers.values()].flatMap(({ policyName }) => policyName ?? []);
  await Promise.all([project.policyName, ...new Set(named)].map(policyNamed));
}
