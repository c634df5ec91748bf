import { parsePathIn } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ToolResult } from "../../tools/run-tool.ts";
import { TOOLS } from "../../tools/toolbox.ts";
import type { GrantNeed } from "./request.ts";

/**
 * What a tool that was refused would need; null where it was refused for another reason than a path outside, or for one
 * that it was not given itself.
 */
export function needOf(
  tool: string,
  rawInput: unknown,
  result: ToolResult,
  sandbox: Sandbox,
): Omit<GrantNeed, "under"> | null {
  if (result.ok || (result.code !== "PATH_NOT_IN_SANDBOX" && result.code !== "PATH_NOT_WRITABLE")) return null;
  for (const [field, mode] of Object.entries(TOOLS.get(tool)?.paths ?? {})) {
    const path = pathIn(rawInput, field, sandbox);
    if (path !== null && path === result.data.path) return { path, mode, why: `to use ${tool} on '${path}'` };
  }
  return null;
}

function pathIn(rawInput: unknown, field: string, sandbox: Sandbox): VirtualPath | null {
  const raw = (rawInput as Readonly<Record<string, unknown>> | null)?.[field];
  const parsed = typeof raw === "string" ? parsePathIn(sandbox, raw) : null;
  return parsed?.ok ? parsed.path : null;
}
