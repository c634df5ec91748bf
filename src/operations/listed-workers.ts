import { loadProject } from "../declarations/project.ts";
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
  /** The policy of a run by itself. */
  readonly policy: string;
  readonly calls: readonly string[];
}

/** All workers of a project's folder, by name; or every mistake in its files, as `corral check` says them. Runs nothing. */
export async function listWorkers(
  dir: string,
  env: Readonly<Record<string, string | undefined>>,
): Promise<{ readonly workers: readonly ListedWorker[]; readonly problems: readonly string[] }> {
  try {
    const { workers, policyName } = await loadProject(dir, env);
    const listed = [...workers.values()].map(({ name, description, file, image, model, calls, policyName: own }) => {
      return { name, description, file, image, model, policy: own ?? policyName, calls };
    });
    return { workers: listed, problems: [] };
  } catch (error) {
    if (!(error instanceof DeclarationError)) throw error;
    return { workers: [], problems: error.problems.map(describeProblem) };
  }
}
