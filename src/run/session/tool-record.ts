import type { ToolUsed } from "../../audit/records.ts";
import { isTooDeep } from "../../json/parse-json.ts";
import type { ToolResult } from "../../tools/run-tool.ts";
import type { Job } from "../model/job.ts";

/** What of a tool's input says what it was used on. What it wrote or was given besides is nobody's to keep. */
const TELLING = ["path", "from", "to", "paths", "files", "command", "cwd", "worker", "attachments", "repo", "commit"];
const MAX_TEXT = 1000;

export function toolUsed(
  { run, root, worker }: Pick<Job, "run" | "root" | "worker">,
  tool: string,
  rawInput: unknown,
  result: ToolResult,
): ToolUsed {
  const input = typeof rawInput === "object" && rawInput !== null ? (rawInput as Record<string, unknown>) : {};
  const on = TELLING.filter((name) => Object.hasOwn(input, name)).map((name) => [name, shown(input[name])]);
  const refusal = result.ok ? {} : { code: result.code, message: result.message.slice(0, MAX_TEXT) };
  return {
    type: "tool_used",
    run,
    root,
    worker: worker.name,
    tool,
    on: Object.fromEntries(on),
    ok: result.ok,
    ...endOf(result),
    ...refusal,
  };
}

/** How a command or a called worker ended. That a tool did its part says nothing of that. */
function endOf({ data: { status, exitCode } }: ToolResult): Pick<ToolUsed, "status" | "exitCode"> {
  if (typeof status !== "string") return {};
  return { status, exitCode: typeof exitCode === "number" ? exitCode : null };
}

function shown(value: unknown): string {
  // One that is nested too deeply was refused for that, and cannot be written down.
  const text = typeof value === "string" ? value : isTooDeep(value) ? "…" : (JSON.stringify(value) ?? "");
  return text.slice(0, MAX_TEXT);
}
