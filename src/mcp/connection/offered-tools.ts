import type { Tool as ToolDescription } from "@modelcontextprotocol/server";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import { usefulTools } from "../../run/session/offered-tools.ts";
import { describedFor } from "../../run/session/tool-description.ts";
import { inputSchemaOf, type Tool } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";

/** The tools that a worker may and can use, by name: all others would be refused. */
export function offeredTools(worker: WorkerDefinition): ReadonlyMap<string, Tool> {
  return new Map(usefulTools(worker).flatMap((name) => entryOf(name)));
}

function entryOf(name: string): [string, Tool][] {
  const tool = TOOLS.get(name);
  return tool === undefined ? [] : [[name, tool]];
}

/** A tool in the protocol's form. `workers`: those of the project; they describe the callable ones. */
export function toolDescription(
  tool: Tool,
  worker: Pick<WorkerDefinition, "calls">,
  workers: ReadonlyMap<string, Pick<WorkerDefinition, "description">>,
): ToolDescription {
  const { name, title, effects } = tool;
  return {
    name,
    title,
    description: describedFor(tool, worker, workers),
    inputSchema: inputSchemaOf(tool) as ToolDescription["inputSchema"],
    annotations: {
      title,
      readOnlyHint: effects.readOnly,
      destructiveHint: effects.destructive,
      idempotentHint: effects.idempotent,
      openWorldHint: effects.openWorld,
    },
  };
}
