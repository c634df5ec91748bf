import type { RecordOf } from "../../audit/records.ts";
import { isTooDeep } from "../../json/parse-json.ts";
import type { ToolResult } from "../../tools/tool.ts";
import type { Records } from "../model/environment.ts";
import { identityOf, type Job } from "../model/job.ts";

/** The limit for one session: a loop may use tools without end. */
const MAX_RECORDS = 10_000;

/** Records the use of one tool of a session. */
export type RecordTool = (tool: string, rawInput: unknown, result: ToolResult) => void;

/** Records the use of a session's tools. No tool waits for the disk; a failure to record is reported. */
export function toolRecorder(job: Job, { audit, emit }: Records): RecordTool {
  let count = 0;
  return (tool, rawInput, result) => {
    count += 1;
    if (count > MAX_RECORDS) return;
    const note = count === MAX_RECORDS ? "further tools of this session are not recorded" : undefined;
    audit.append({ ...toolUsed(job, tool, rawInput, result), note }).catch((error: Error) => {
      emit({ type: "trouble", ...identityOf(job), detail: error.message });
    });
  };
}

/** The fields of a tool's input that say what it was used on. Contents that it wrote or received are not recorded. */
const TELLING = ["path", "from", "to", "paths", "files", "command", "cwd", "worker", "attachments", "repo", "commit"];
const MAX_TEXT = 1000;

function toolUsed(
  { run, root, worker }: Pick<Job, "run" | "root" | "worker">,
  tool: string,
  rawInput: unknown,
  result: ToolResult,
): RecordOf<"tool_used"> {
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

/** How a command or a called worker ended. A tool may succeed although its command failed. */
function endOf({ data: { status, exitCode } }: ToolResult): Pick<RecordOf<"tool_used">, "status" | "exitCode"> {
  if (typeof status !== "string") return {};
  return { status, exitCode: typeof exitCode === "number" ? exitCode : null };
}

function shown(value: unknown): string {
  // An input that is nested too deeply was refused, and cannot be recorded.
  const text = typeof value === "string" ? value : isTooDeep(value) ? "…" : (JSON.stringify(value) ?? "");
  return text.slice(0, MAX_TEXT);
}
