import { loadProject, ProjectError } from "../declarations/project.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { DeclarationError, describeProblem } from "../declarations/yaml/problem.ts";

/** A worker of a project, as a list shows it. */
export interface ListedWorker {
  readonly name: string;
  readonly description: string;
  /** The file, as it was found. */
  readonly file: string;
  readonly image: string;
  /** Of an agent; null: it runs a command. */
  readonly model: string | null;
  /** The policy of a run by itself; null: that of the project, whose files are wrong. */
  readonly policy: string | null;
  readonly calls: readonly string[];
}

/**
 * All workers of a project's folder, by name. If its files have mistakes: those with whose own files nothing is wrong, and every
 * mistake, as `corral check` says it. Runs nothing.
 */
export async function listWorkers(
  dir: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<{ readonly workers: readonly ListedWorker[]; readonly problems: readonly string[] }> {
  try {
    const { workers, policyName } = await loadProject(dir, env);
    return { workers: listed(workers, policyName), problems: [] };
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    const sound = error instanceof ProjectError ? listed(error.sound, null) : [];
    return { workers: sound, problems: error.problems.map(describeProblem) };
  }
}

function listed(workers: ReadonlyMap<string, WorkerDefinition>, projectPolicy: string | null): ListedWorker[] {
  return [...workers.values()].map(({ name, description, file, image, model, calls, policyName }) => {
    return { name, description, file, image, model, policy: policyName ?? projectPolicy, calls };
  });
}
