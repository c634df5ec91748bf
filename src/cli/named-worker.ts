import type { Project } from "../project/project.ts";
import type { WorkerDefinition } from "../project/worker/worker.ts";
import { nearest } from "../yaml/issue.ts";
import { printableLine } from "./terminal/printable.ts";
import { UsageError } from "./terminal/usage-error.ts";

/** The worker that a person named, or what they may have meant. */
export function namedWorker(name: string, { workers, dir }: Project): WorkerDefinition {
  const worker = workers.get(name);
  if (worker !== undefined) return worker;
  const known = [...workers.keys()].sort();
  const there = known.length === 0 ? `${dir} has no workers` : `there are: ${known.join(", ")}`;
  throw new UsageError(`there is no worker ${printableLine(name, 80)}${nearest(name, known) ?? `; ${there}`}`);
}
