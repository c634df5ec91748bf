import type { RunStatus } from "../../run/model/result.ts";
import { inputSchemaOf } from "../../tools/input-schema.ts";
import type { ToolResult } from "../../tools/tool-result.ts";
import { TOOLS } from "../../tools/toolbox.ts";
import { readInput } from "../run/input.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, exitStatusOf } from "../terminal/exit-status.ts";
import { printJson, say, type Terminal } from "../terminal/terminal.ts";
import { inSession, type SessionOptions } from "./opened-session.ts";

export interface ToolOptions extends Omit<SessionOptions, "worker"> {
  readonly worker?: string;
  readonly json?: boolean;
}

/** `corral tool`: one tool, once, under a worker's sandbox. Without a name it lists what there is. */
export async function toolVerb(
  name: string | undefined,
  input: string | undefined,
  options: ToolOptions,
  terminal: Terminal,
): Promise<number> {
  if (name === undefined) return listTools(options, terminal);
  if (!TOOLS.has(name))
    throw new UsageError(`there is no tool ${JSON.stringify(name)}; there are: ${[...TOOLS.keys()].join(", ")}`);
  const { worker } = options;
  if (worker === undefined) throw new UsageError("use --worker NAME: the tool runs in the sandbox of this worker");
  const rawInput = (await readInput(input, terminal, "the input")) ?? {};
  return await inSession({ ...options, worker }, terminal, async (session, stop) => {
    const result = await session.runTool(name, rawInput, stop.signal);
    if (options.json) printJson(terminal, result);
    else if (result.ok) terminal.stdout.write(result.text.endsWith("\n") ? result.text : `${result.text}\n`);
    else say(terminal, `corral: ${result.message}`);
    return statusOf(name, result);
  });
}

/** A command's own status counts as the tool's. */
function statusOf(name: string, result: ToolResult): number {
  if (!result.ok) return { BAD_INPUT: EXIT.wrongUsage, CANCELLED: EXIT.cancelled }[result.code] ?? EXIT.refused;
  if (name !== "exec") return 0;
  return exitStatusOf(result.data as { status: RunStatus; exitCode: number | null; signal: string | null });
}

function listTools({ json }: ToolOptions, terminal: Terminal): number {
  const tools = [...TOOLS.values()].map((tool) => ({
    name: tool.name,
    description: tool.description,
    input: inputSchemaOf(tool),
  }));
  if (json) printJson(terminal, tools);
  else for (const tool of tools) terminal.stdout.write(`${tool.name}\n  ${tool.description}\n`);
  return 0;
}
