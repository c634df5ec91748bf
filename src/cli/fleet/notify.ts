import { spawn } from "node:child_process";
import type { FleetSummary } from "../../fleet/events.ts";
import { printableLine } from "../../text/visible.ts";
import { UsageError } from "../terminal/arguments.ts";
import type { Terminal } from "../terminal/terminal.ts";

const TIMEOUT_MS = 60_000;
/** Between asking the command to end and killing it. */
const GRACE_MS = 2000;

/**
 * A command line as words: quotes and backslashes are read as a shell does, and nothing else. What only a shell could do is an
 * error, so that nothing is taken literally that was meant otherwise.
 */
export function commandWords(text: string): string[] {
  const words: string[] = [];
  for (const [token] of text.matchAll(WORD)) {
    if (/^[ \t]+$/.test(token)) continue;
    const bare = token.replaceAll(QUOTED, "");
    if (/[|&;<>()$`*?'"\\\n]|^~/.test(bare))
      throw new UsageError(
        `--notify: no shell reads this command, so ${printableLine(token, 80)} means nothing; use "sh -c '…'", or put it in quotes`,
      );
    words.push(token.replaceAll(QUOTED, unquoted));
  }
  if (words.length === 0) throw new UsageError("--notify needs a command");
  return words;
}

/** Single quotes, double quotes, an escaped character. */
const QUOTED = /'[^']*'|"(?:[^"\\]|\\.)*"|\\./gs;
const WORD = /(?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s'"\\])+|['"\\]|[ \t]+|\s/gs;

function unquoted(quoted: string): string {
  if (quoted.startsWith("\\")) return quoted.slice(1);
  const inner = quoted.slice(1, -1);
  return quoted.startsWith('"') ? inner.replaceAll(/\\(["\\$`])/g, "$1") : inner;
}

/**
 * Runs a command of the user on the host with the fleet's summary as JSON on its standard input. What it prints is on standard
 * error. Returns a warning if it failed; the fleet has ended anyway.
 */
export async function notified(
  [program = "", ...args]: readonly string[],
  summary: FleetSummary,
  { cwd, env }: Pick<Terminal, "cwd" | "env">,
  signal: AbortSignal,
): Promise<string | null> {
  const { promise, resolve } = Promise.withResolvers<string | null>();
  const warning = (how: string): string => `corral: warning: --notify ${printableLine(program, 80)} ${how}`;
  // A group of its own, so that what the command started ends with it.
  const child = spawn(program, args, { cwd, env, stdio: ["pipe", 2, 2], detached: true });
  const kill = (how: NodeJS.Signals): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, how);
    } catch {
      // It has ended meanwhile.
    }
  };
  let ended: string | null = null;
  let killing: NodeJS.Timeout | undefined;
  const stop = (why: string): void => {
    ended ??= why;
    kill("SIGTERM");
    killing ??= setTimeout(() => kill("SIGKILL"), GRACE_MS);
  };
  const onStop = (): void => stop("was ended by Ctrl-C");
  const timer = setTimeout(() => stop(`did not end within ${TIMEOUT_MS / 1000}s and was ended`), TIMEOUT_MS);
  signal.addEventListener("abort", onStop, { once: true });
  child.once("error", (error) => resolve(warning(`could not be started: ${printableLine(error.message, 200)}`)));
  child.once("exit", (code, killed) => {
    if (ended !== null) resolve(warning(ended));
    else
      resolve(
        code === 0 ? null : warning(killed === null ? `ended with exit status ${code}` : `was ended by ${killed}`),
      );
  });
  // It need not read the summary.
  child.stdin?.on("error", () => {});
  child.stdin?.end(`${JSON.stringify(summary)}\n`);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    clearTimeout(killing);
    signal.removeEventListener("abort", onStop);
  }
}
