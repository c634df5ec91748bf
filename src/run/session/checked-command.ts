import { posix } from "node:path";
import { HOME_PATH, type Plan } from "../../isolation/plan/plan.ts";
import { MAX_TIMER_MS } from "../../platform/within.ts";
import { canRead, parsePathIn, readablePaths } from "../../sandbox/access.ts";
import { lesserNetwork } from "../../sandbox/network/rule.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { ROOT } from "../../sandbox/virtual-path.ts";
import type { ExecToolRequest } from "../../tools/hands.ts";
import { ToolRefusal } from "../../tools/tool.ts";
import { inCell } from "../model/job.ts";
import type { CheckedCommand, OnOutput } from "./exec-command.ts";

/** Names that decide which code a program loads and where its home is: the cell sets them, not a caller. */
const FIXED_NAMES = /^(HOME|CORRAL_.*|LD_.*)$/;
/** The longest argument that the kernel accepts, including its closing zero (MAX_ARG_STRLEN). */
const MAX_ARGUMENT_BYTES = 131_072;
/** Well below the kernel's limit for arguments and environment together. */
const MAX_ENV_BYTES = 1_000_000;

/** A refusal names so many hosts. */
const MAX_HOSTS = 20;

export interface CommandBounds {
  readonly id: string;
  /** Until the deadline of the run. */
  readonly leftMs: number;
  readonly onOutput: OnOutput;
}

/** A command in the form that a cell accepts. Throws `ToolRefusal` if it is not allowed. */
export function checkedCommand(
  request: ExecToolRequest,
  sandbox: Sandbox,
  plan: Plan,
  { id, leftMs, onOutput }: CommandBounds,
): CheckedCommand {
  const env = request.env ?? {};
  refuseTexts(request.command, env);
  refuseHosts(request, sandbox);
  const { limits } = plan;
  return {
    id,
    argv: ["sh", "-c", request.command],
    cwd: request.cwd === undefined ? plan.workingDir : cwdOf(request.cwd, sandbox, inMemoryOf(plan)),
    env,
    stdin: Buffer.from(request.stdin ?? ""),
    timeoutMs: Math.max(1, Math.min(request.timeoutMs ?? limits.timeoutMs, limits.timeoutMs, leftMs, MAX_TIMER_MS)),
    maxOutputBytes: limits.outputBytes,
    onOutput,
  };
}

/**
 * Refuses what {@link checkedCommand} would refuse, before there is a plan: a person is asked only about what can run.
 * `volumes`: the directories that the image declares.
 */
export async function refuseUnfit(
  request: ExecToolRequest,
  sandbox: Sandbox,
  volumes: () => Promise<readonly string[]>,
): Promise<void> {
  const { command, env = {}, cwd } = request;
  refuseTexts(command, env);
  refuseHosts(request, sandbox);
  if (cwd === undefined) return;
  try {
    cwdOf(cwd, sandbox, IN_MEMORY);
  } catch (error) {
    const others = await volumes();
    if (others.length === 0) throw error;
    cwdOf(cwd, sandbox, [...IN_MEMORY, ...others]);
  }
}

const IN_MEMORY = ["/tmp", HOME_PATH];

function inMemoryOf(plan: Plan): string[] {
  return plan.tmpfs.map((tmpfs) => tmpfs.path);
}

function refuseHosts({ network: only }: ExecToolRequest, { network }: Sandbox): void {
  const lesser = only === undefined ? null : lesserNetwork(network, only);
  if (lesser === null || lesser.ok) return;
  const allowed = typeof network === "boolean" ? [] : network.allow.map(({ to }) => to);
  const has =
    network === true ? "" : ` Allowed: ${allowed.length === 0 ? "none" : allowed.slice(0, MAX_HOSTS).join(", ")}.`;
  throw new ToolRefusal("BAD_NETWORK", `A command cannot be limited to \`${lesser.to}\`: ${lesser.reason}.${has}`);
}

/** Refuses what the kernel would not accept: else the engine's error would look like the command's own. */
function refuseTexts(command: string, env: Readonly<Record<string, string>>): void {
  const wrong = Object.keys(env).filter((name) => !/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || FIXED_NAMES.test(name));
  if (wrong.length > 0) throw new ToolRefusal("BAD_ENVIRONMENT", `These variables cannot be set: ${wrong.join(", ")}.`);
  const settings = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  if ([command, ...settings].some((text) => text.includes("\0")))
    throw new ToolRefusal("BAD_INPUT", "A command and its variables cannot hold a NUL character.");
  const tooLong = (text: string): boolean => Buffer.byteLength(text) >= MAX_ARGUMENT_BYTES;
  if (tooLong(command))
    throw new ToolRefusal(
      "COMMAND_TOO_LONG",
      `A command may have at most ${MAX_ARGUMENT_BYTES - 1} bytes. Write a long script to a file, or pass data as standard input.`,
    );
  const bytes = settings.reduce((sum, setting) => sum + Buffer.byteLength(setting) + 1, 0);
  if (bytes > MAX_ENV_BYTES || settings.some(tooLong))
    throw new ToolRefusal("BAD_ENVIRONMENT", "The variables are too long. Write large data to a file.");
}

/** A directory of the sandbox, or one of the two in-memory directories of every cell. */
function cwdOf(raw: string, sandbox: Sandbox, inMemory: readonly string[]): string {
  const plain = raw.includes("\0") ? "" : posix.normalize(raw);
  if (inMemory.some((own) => plain === own || plain.startsWith(`${own}/`))) return plain;
  const parsed = parsePathIn(sandbox, raw);
  if (!parsed.ok) throw new ToolRefusal("BAD_DIRECTORY", `A command cannot run there: ${parsed.reason}.`);
  if (parsed.path !== ROOT && !canRead(sandbox, parsed.path, { directory: true })) {
    const allowed = [...readablePaths(sandbox).map((path) => inCell(path, sandbox)), ...inMemory].join(", ");
    throw new ToolRefusal(
      "BAD_DIRECTORY",
      `A command cannot run in '${parsed.path}': it is outside the sandbox. Directories: ${allowed}.`,
    );
  }
  return inCell(parsed.path, sandbox);
}
