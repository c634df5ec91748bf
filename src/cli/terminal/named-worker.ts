import type { Project } from "../../declarations/project.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { nearest } from "../../declarations/yaml/issue.ts";
import { printableLine } from "../../operations/wording/printable.ts";
import { UsageError } from "./usage-error.ts";

/** The worker that a person named, or what they may have meant. */
export function namedWorker(name: string, { workers, dir }: Project): WorkerDefinition {
  const worker = workers.get(name);
  if (worker !== undefined) return worker;
  const known = [...workers.keys()].sort();
  const there = known.length === 0 ? `${dir} has no workers` : `there are: ${known.join(", ")}`;
  throw new UsageError(`there is no worker ${printableLine(name, 80)}${nearest(name, known) ?? `; ${there}`}`);
}
