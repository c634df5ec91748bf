import { HOME_PATH, type Plan, ROOTED_BASE } from "../../isolation/plan.ts";
import { canRead, parsePathIn, readablePaths } from "../../sandbox/access.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { ROOT } from "../../sandbox/virtual-path.ts";
import type { ExecToolRequest } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { fromCell } from "../call.ts";
import type { CheckedCommand } from "./exec-command.ts";

/** Names that decide whose code runs in a program, or where it believes itself at home: the cell's own, not a caller's. */
const FIXED_NAMES = /^(HOME|CORRAL_.*|LD_.*)$/;

/** A command as a cell takes it; throws `ToolRefusal` for what it may not be. */
export function checkedCommand(
  request: ExecToolRequest,
  sandbox: Sandbox,
  plan: Plan,
  { id, leftMs }: { id: string; leftMs: number },
): CheckedCommand {
  const env = request.env ?? {};
  const wrong = Object.keys(env).filter((name) => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || FIXED_NAMES.test(name));
  if (wrong.length > 0) throw new ToolRefusal("BAD_ENVIRONMENT", `These variables cannot be set: ${wrong.join(", ")}.`);
  const texts = [request.command, ...Object.values(env)];
  if (texts.some((text) => text.includes("\0")))
    throw new ToolRefusal("BAD_INPUT", "A command cannot hold a NUL character.");
  return {
    id,
    argv: ["sh", "-c", request.command],
    cwd: request.cwd === undefined ? plan.workingDir : cwdOf(request.cwd, sandbox),
    env,
    stdin: Buffer.from(request.stdin ?? ""),
    timeoutMs: Math.max(1, Math.min(request.timeoutMs ?? plan.limits.timeoutMs, plan.limits.timeoutMs, leftMs)),
    maxOutputBytes: plan.limits.outputBytes,
    onOutput: () => {},
  };
}

/** A directory of the sandbox, or one of the two that every cell has in memory. */
function cwdOf(raw: string, sandbox: Sandbox): string {
  if ([HOME_PATH, "/tmp"].some((own) => raw === own || raw.startsWith(`${own}/`))) return raw;
  const parsed = parsePathIn(sandbox, fromCell(raw, sandbox));
  const readable = readablePaths(sandbox);
  if (!parsed.ok) throw new ToolRefusal("BAD_DIRECTORY", `'${raw}' is no directory: ${parsed.reason}.`);
  if (parsed.path !== ROOT && !canRead(sandbox, parsed.path)) {
    const allowed = [...readable, "/tmp", HOME_PATH].join(", ");
    throw new ToolRefusal(
      "BAD_DIRECTORY",
      `A command cannot run in '${raw}': it is outside the sandbox. Directories: ${allowed}.`,
    );
  }
  if (!sandbox.rooted) return parsed.path;
  return parsed.path === ROOT ? ROOTED_BASE : ROOTED_BASE + parsed.path;
}
