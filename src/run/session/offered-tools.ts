import { TOOL_NAMES, type ToolName } from "../../declarations/worker/tool-names.ts";
import type { WorkerDefinition } from "../../declarations/worker/worker.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { Tool, ToolResult } from "../../tools/tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";

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

/** The tools that a worker may use: those that its file names. If it names none, an agent has none and a command has all. */
export function allowedTools({ tools, agent }: WorkerDefinition): readonly ToolName[] {
  return tools ?? (agent === undefined ? TOOL_NAMES : []);
}

/**
 * The tools that have a use: a worker that may call no other worker is not offered the tool for calls. `sandbox`: its own, if
 * it is known; what waits there for consent, and hosts of its network, can be asked for.
 */
export function usefulTools(worker: WorkerDefinition, sandbox?: Sandbox): ToolName[] {
  const { calls, git = [], dynamic } = worker;
  const networks = [worker.needs.network, sandbox?.network];
  const mayAskForHosts = networks.some((network) => typeof network === "object" && network.dynamic !== undefined);
  const mayAsk = dynamic !== null || mayAskForHosts || (sandbox?.withheld ?? []).length > 0;
  return allowedTools(worker).filter((name) => {
    const uses = TOOLS.get(name)?.uses;
    return (
      (uses !== "calls" || calls.length > 0) && (uses !== "git" || git.length > 0) && (uses !== "access" || mayAsk)
    );
  });
}

/** The answer to a request for another tool. */
export function notOffered(name: string, worker: WorkerDefinition): ToolResult {
  const offered = usefulTools(worker);
  const there = offered.length === 0 ? "There are no tools." : `The tools are: ${offered.join(", ")}.`;
  if (!TOOLS.has(name))
    return { ok: false, code: "NO_SUCH_TOOL", message: `There is no tool ${name}. ${there}`, data: {} };
  const message = `Worker ${worker.name} does not have the tool ${name}. ${there}`;
  return { ok: false, code: "TOOL_NOT_OFFERED", message, data: {} };
}
