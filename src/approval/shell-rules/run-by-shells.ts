import type { PrintedWord } from "./printed-word.ts";

/** Variables whose value a shell runs as commands, or as a file of commands. */
const RUN_BY_SHELLS = new Set(["BASH_ENV", "ENV", "PROMPT_COMMAND", "PS0", "PS1", "PS2", "PS4"]);

export function isRunByShells(variable: string): boolean {
  return RUN_BY_SHELLS.has(variable);
}

/** Why a command may set one of these variables by its last word here; null if it cannot. `before`: the first three words before it. */
export function whySetsRun(before: readonly PrintedWord[], { start, value }: PrintedWord): string | null {
  if (!mayName(before)) return null;
  if (value === null && /^[-A-Za-z0-9_]*$/.test(start)) return "which variable it sets is not known before it runs";
  const named = /^(?:-[A-Za-z]*?)?([A-Z_0-9]+)(?:\+?=|\[|$)/.exec(start)?.[1] ?? "";
  return isRunByShells(named) ? `shells run what ${named} names` : null;
}

/** Other builtins that set variables count as commands that hide others. */
function mayName([command, option, ...more]: readonly PrintedWord[]): boolean {
  // In `printf -v NAME` the option comes before the format.
  if (command?.value === "printf") return option === undefined || (option.value === "-v" && more.length === 0);
  return SETTING.has(command?.value ?? "");
}

const SETTING = new Set(["export", "readonly", "read", "mapfile", "readarray"]);
