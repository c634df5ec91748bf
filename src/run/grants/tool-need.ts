import { parsePathIn } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { ToolResult } from "../../tools/run-tool.ts";
import type { Mode } from "../granted/refusal.ts";
import type { GrantNeed } from "./request.ts";

/** What each file tool does at each path that it is given. Tools that are not here raise no request. */
const PATHS: Readonly<Record<string, Readonly<Record<string, Mode>>>> = {
  read_file: { path: "read" },
  list_files: { path: "read" },
  file_info: { path: "read" },
  write_file: { path: "write" },
  edit_file: { path: "write" },
  append_file: { path: "write" },
  delete_file: { path: "write" },
  move_file: { from: "write", to: "write" },
  copy_file: { from: "read", to: "write" },
};

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
  for (const [field, mode] of Object.entries(PATHS[tool] ?? {})) {
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
