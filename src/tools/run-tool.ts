import { z } from "zod";
import { UnshownContentError } from "../files/model/refusals.ts";
import { examine, firstFaults, hasMoreValues, isTooDeep, MAX_JSON_DEPTH, MAX_JSON_VALUES } from "../json/parse-json.ts";
import { SandboxError } from "../sandbox/errors.ts";
import type { Hands } from "./hands.ts";
import { type Tool, ToolRefusal, type ToolResult } from "./tool.ts";
import { TOOLS } from "./toolbox.ts";

/** Runs a tool by name on raw input. Rejects only for bugs and engine errors. */
export async function runTool(name: string, rawInput: unknown, hands: Hands, signal: AbortSignal): Promise<ToolResult> {
  const tool = TOOLS.get(name);
  if (tool === undefined)
    return refusal("NO_SUCH_TOOL", `There is no tool ${name}. The tools are: ${[...TOOLS.keys()].join(", ")}.`);
  const maxValues = tool.uses === "calls" ? MAX_JSON_VALUES : MAX_INPUT_VALUES;
  if (hasMoreValues(rawInput, maxValues))
    return refusal("BAD_INPUT", `The input of ${name} has more than ${maxValues} values. Write large data to a file.`);
  if (isTooDeep(rawInput))
    return refusal(
      "BAD_INPUT",
      `The input of ${name} is nested more than ${MAX_JSON_DEPTH} levels deep. Use flatter JSON.`,
    );
  const parsed = examine(tool.input, rawInput);
  if (!parsed.success)
    return refusal(
      "BAD_INPUT",
      `The input of ${name} is not valid:\n${firstFaults(parsed.error)}${knownKeys(tool, parsed.error)}`,
    );
  try {
    return { ok: true, ...(await tool.run(parsed.data, hands, signal)) };
  } catch (error) {
    if (error instanceof ToolRefusal) return { ok: false, code: error.code, message: error.message, data: error.data };
    if (error instanceof SandboxError)
      return { ...refusal(error.code, error.message + instead(error, hands)), data: { path: error.path } };
    throw error;
  }
}

/** More than any tool needs but a call, whose input is a worker's. Checking each value against the schema takes time. */
const MAX_INPUT_VALUES = 10_000;

/** The fields that a tool takes, if the input has another one. */
function knownKeys({ input }: Tool, { issues }: z.ZodError): string {
  if (!issues.some(({ code }) => code === "unrecognized_keys")) return "";
  const { properties = {} } = z.toJSONSchema(input, { io: "input" });
  return `\nThe fields are: ${Object.keys(properties).join(", ")}.`;
}

function instead(error: SandboxError, hands: Hands): string {
  return `${error instanceof UnshownContentError ? otherWay(hands) : ""}${atCommands(error, hands)}`;
}

/** Who can take what a tool cannot show. */
function otherWay({ offered }: Pick<Hands, "offered">): string {
  if (offered.includes("call_worker")) return " Pass it as an attachment to a worker that can handle it (call_worker).";
  return offered.includes("exec") ? " A command may handle it (exec)." : "";
}

/** With the root form a file has two names: the refusal gives both. */
function atCommands({ path }: SandboxError, { files }: Hands): string {
  const resolved = path === null ? null : files.resolve(path);
  const seen = resolved?.ok ? files.commandPath(resolved.path) : null;
  return seen === null ? "" : `\nCommands see it at '${seen}'.`;
}

function refusal(code: string, message: string): ToolResult & { ok: false } {
  return { ok: false, code, message, data: {} };
}
