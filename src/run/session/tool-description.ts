import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { Tool } from "../../tools/tool.ts";

/** The most characters that describe a callable worker. */
const MAX_DESCRIPTION = 500;

/** What a tool does, for a model; the one for calls names whom it can call. `workers`: those of the project. */
export function describedFor(
  { description, uses }: Pick<Tool, "description" | "uses">,
  { calls }: Pick<WorkerDefinition, "calls">,
  workers: ReadonlyMap<string, Pick<WorkerDefinition, "description">>,
): string {
  if (uses !== "calls") return description;
  const described = calls.map((name) => {
    const what = workers.get(name)?.description.replaceAll(/\s+/g, " ").slice(0, MAX_DESCRIPTION) ?? "";
    return what === "" ? `- ${name}` : `- ${name}: ${what}`;
  });
  return `${description}\nThe workers that can be called:\n${described.join("\n")}`;
}
