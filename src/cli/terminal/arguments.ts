import { realpath } from "node:fs/promises";
import { homedir } from "node:os";
import { posix, resolve, win32 } from "node:path";
import type { ProjectPlace } from "../../operations/audit.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { printableLine } from "../../text/visible.ts";
import type { Terminal } from "./terminal.ts";

/** The command line cannot be understood, or names what is not there. Nothing has been run; the exit status is 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** What an option that takes a date says, in milliseconds since 1970. A date alone is UTC. */
export function dateOf(option: string, text: string): number {
  const at = Date.parse(text);
  if (Number.isNaN(at))
    throw new UsageError(
      `${option} takes a date such as 2025-01-31 or 2025-01-31T14:00Z, not ${printableLine(text, 80)}`,
    );
  return at;
}

/** What an option that takes a count says: from 1 to 999,999. */
export function countOf(option: string, text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text);
  throw new UsageError(`${option} takes a number from 1, not ${printableLine(text, 80)}`);
}

const AGE_MS = { d: 86_400_000, h: 3_600_000, m: 60_000 } as const;

/** What an option that takes an age says, in milliseconds. */
export function ageOf(option: string, text: string): number {
  const [, amount, unit] = /^(\d{1,6})([dhm])$/.exec(text) ?? [];
  if (amount === undefined)
    throw new UsageError(`${option} takes an age such as 30d, 12h or 90m, not ${printableLine(text, 80)}`);
  return Number(amount) * AGE_MS[unit as keyof typeof AGE_MS];
}

/** Of a session that stays. */
export interface HoldOptions {
  readonly project: string;
  readonly name?: string;
  readonly idle?: string;
  readonly endAfter?: string;
  readonly policy?: string;
  /** A snapshot to go on from. */
  readonly from?: string;
  readonly driver?: string;
  readonly json?: boolean;
  /** Ports beside those that the worker declares. */
  readonly port?: readonly string[];
}

/** How long a session stays without being used; null if it is not said. @throws UsageError */
export function idleTimes({ idle, endAfter }: Pick<HoldOptions, "idle" | "endAfter">) {
  const pauseMs = idle === undefined ? null : ageOf("--idle", idle);
  const endMs = endAfter === undefined ? null : ageOf("--end-after", endAfter);
  if (pauseMs !== null && endMs !== null && endMs <= pauseMs)
    throw new UsageError("--end-after is longer than --idle: a session is paused before it ends");
  return { pauseMs, endMs };
}

export function portOf(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (port < 1 || port > 65_535)
    throw new UsageError(`a port is a number from 1 to 65535, not ${printableLine(text, 80)}`);
  return port;
}

export interface ProjectOptions {
  readonly project: string;
  readonly json?: boolean;
}

/** `--project`, and where Corral keeps what it has of this project. */
export async function projectPlaceOf(
  { project }: ProjectOptions,
  terminal: Pick<Terminal, "cwd" | "env">,
): Promise<ProjectPlace> {
  return { stateDir: stateDirFrom(terminal.env), projectDir: await projectFolder(project, terminal) };
}

/** The folder of `--project`, for what Corral keeps of it: the folder itself may be gone. Absolute, without symbolic links. */
export async function projectFolder(dir: string, { cwd }: Pick<Terminal, "cwd">): Promise<string> {
  const path = resolve(cwd, dir);
  return await realpath(path).catch(() => path);
}

/**
 * The file with the services that this user logged in to: below `$XDG_CONFIG_HOME` or `~/.config`, on Windows below `%APPDATA%`. A relative
 * XDG_CONFIG_HOME is ignored, as the specification asks.
 */
export function configFile(env: Terminal["env"], platform: NodeJS.Platform = process.platform): string {
  const { join, isAbsolute } = platform === "win32" ? win32 : posix;
  if (platform === "win32" && env.APPDATA) return join(env.APPDATA, "Corral", "contexts.json");
  const home = env.HOME || env.USERPROFILE || homedir();
  const base = env.XDG_CONFIG_HOME && isAbsolute(env.XDG_CONFIG_HOME) ? env.XDG_CONFIG_HOME : join(home, ".config");
  return join(base, "corral", "contexts.json");
}
