import { COMMANDS_PATH } from "../plan/plan.ts";
import { EngineTrouble } from "../port/driver.ts";
import type { ExecRequest } from "../port/exec.ts";

/** How many commands may run at once. The first process has a job for each. */
export const MAX_COMMANDS = 16;

/**
 * Runs a command as the worker. `name` names its pipes. Its variables are given by a program, because some of them (IFS) have a
 * meaning of their own in the shell; its program is looked up as if they had been set before.
 */
export function runRequest(name: string, { argv, cwd, env }: ExecRequest, hasInput: boolean): string {
  const input = hasInput ? `${COMMANDS_PATH}/${name}.in` : "/dev/null";
  const variables = Object.entries(env).map(([key, value]) => quoted(`${key}=${value}`));
  const given = variables.length === 0 ? "" : `"$corral_gate" env ${variables.join(" ")} `;
  const path = env.PATH === undefined ? '"$PATH"' : quoted(env.PATH);
  return (
    `corral_become() { exec "$corral_gate" setsid ${given}"$@"; }\n` +
    `corral_run ${name} ${quoted(input)} ${quoted(cwd)} ${path} ${argv.map(quoted).join(" ")}\n`
  );
}

/** Asks whether a command has ended. There is no answer if it has not. */
export function lookRequest(job: number, pid: number): string {
  return `corral_look ${job} ${pid}\n`;
}

/** Signals everything else in the cell at once. */
export function signalRequest(name: string, signal: "TERM" | "KILL"): string {
  return `corral_signal ${signal} ${name} ${MAX_COMMANDS}\n`;
}

/** Asks how many processes the kernel has killed for memory. */
export function countRequest(name: string): string {
  return `corral_count ${name}\n`;
}

/** Takes processes that have ended, and whose own parent has ended before them. */
export const REAP_REQUEST = "jobs -p > /dev/null\n";

/** One word of the shell, whatever is in it: line breaks and bytes that are not text too. */
function quoted(text: string): string {
  if (text.includes("\0")) throw new EngineTrouble("a command cannot have a NUL character in it");
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export type Answer =
  | { readonly kind: "begun"; readonly name: string; readonly pid: number; readonly oomKills: number | null }
  | { readonly kind: "started"; readonly name: string; readonly job: number }
  | { readonly kind: "refused"; readonly name: string }
  | { readonly kind: "ended"; readonly name: string; readonly code: number; readonly oomKills: number | null }
  | { readonly kind: "signalled"; readonly name: string; readonly left: boolean }
  | { readonly kind: "counted"; readonly name: string; readonly oomKills: number | null };

/** Null if the first process never writes such a line. */
export function parseAnswer(line: string): Answer | null {
  const [kind, name = "", first = "", second = ""] = line.split(" ");
  switch (kind) {
    case "begun":
      return { kind, name, pid: Number(first), oomKills: countOf(second) };
    case "started":
      return { kind, name, job: Number(first) };
    case "refused":
      return { kind, name };
    case "ended":
      return { kind, name, code: Number(first), oomKills: countOf(second) };
    case "signalled":
      return { kind, name, left: first !== "no" };
    case "counted":
      return { kind, name, oomKills: countOf(first) };
    default:
      return null;
  }
}

function countOf(text: string): number | null {
  return /^\d+$/.test(text) ? Number(text) : null;
}
