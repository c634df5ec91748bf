import type { Project } from "../declarations/project.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import { RequestError, unknownError } from "./request-error.ts";

/** The worker of this name. @throws RequestError UNKNOWN_WORKER, which names the nearest or all that there are */
export function workerNamed(name: string, { workers }: Pick<Project, "workers">): WorkerDefinition {
  const worker = workers.get(name);
  if (worker === undefined)
    throw unknownError("UNKNOWN_WORKER", "worker", name, [...workers.keys()].sort(), "the project has none");
  return worker;
}

/** The worker with further arguments of its command. @throws RequestError ARGUMENTS if it takes none */
export function withArguments(worker: WorkerDefinition, words: readonly string[]): WorkerDefinition {
  const { name, command, takesArguments = false } = worker;
  if (words.length === 0) return worker;
  const asked = words.join(" ");
  if (command === null)
    throw new RequestError("ARGUMENTS", asked, `${name} is an agent and takes no arguments; give it \`--input\``);
  if (!takesArguments)
    throw new RequestError(
      "ARGUMENTS",
      asked,
      `${name} takes no arguments; \`arguments: true\` in its file lets a user append some to its command`,
    );
  return { ...worker, command: [...command, ...words] };
}
