import { spawn } from "node:child_process";
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { join } from "node:path";
import type { GitProtocol } from "../declarations/git/repo.ts";
import { SYSTEM_PATH } from "../secrets/read-secret.ts";
import { GIT_SETTINGS, gitEnvironment } from "./settings.ts";

/** The absolute path of the system's git. Null if it is not installed. */
export async function findGit(): Promise<string | null> {
  for (const dir of SYSTEM_PATH.split(":")) {
    const path = join(dir, "git");
    const runs = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (runs) return path;
  }
  return null;
}

export interface GitProgram {
  /** Absolute. */
  readonly path: string;
  /** An empty directory of Corral's own. */
  readonly home: string;
}

export interface GitCommand {
  readonly gitDir: string;
  readonly args: readonly string[];
  readonly protocol: GitProtocol;
  readonly signal: AbortSignal;
  readonly timeoutMs: number;
  /** More output ends the process: the output so far is returned, with `cut`. */
  readonly maxOutputBytes: number;
  readonly input?: string | Uint8Array;
  /** Further `-c` settings. They must hold no secret, since every user of the machine can see them. */
  readonly settings?: readonly string[];
  /** Further environment variables of this process. */
  readonly env?: Readonly<Record<string, string>>;
}

export interface GitEnd {
  /** Null if it was killed. */
  readonly status: number | null;
  readonly stdout: Buffer;
  /** The end of the output. */
  readonly stderr: string;
  readonly cut: boolean;
  readonly timedOut: boolean;
}

const MAX_STDERR_CHARS = 8000;
/** The time that git gets to remove its locks. */
const GRACE_MS = 2000;

/**
 * The only place that starts git: with its own environment, without a work tree or a shell, in a process group that is killed
 * when it ends. If the signal is aborted, rejects with its reason.
 */
export async function runGit(program: GitProgram, command: GitCommand): Promise<GitEnd> {
  command.signal.throwIfAborted();
  const settings = [...GIT_SETTINGS, `protocol.${command.protocol}.allow=always`, ...(command.settings ?? [])];
  const args = [`--git-dir=${command.gitDir}`, ...settings.flatMap((one) => ["-c", one]), ...command.args];
  const child = spawn(program.path, args, {
    cwd: program.home,
    env: { ...gitEnvironment(program.home, command.protocol), ...command.env },
    stdio: ["pipe", "pipe", "pipe"],
    detached: true,
  });
  const { promise: ended, resolve, reject } = Promise.withResolvers<number | null>();
  child.once("error", reject).once("close", (code) => resolve(code));

  let grace: NodeJS.Timeout | undefined;
  const kill = (signal: NodeJS.Signals): void => {
    if (child.pid === undefined) return;
    try {
      process.kill(-child.pid, signal);
    } catch {
      // The group has ended.
    }
  };
  const end = (): void => {
    kill("SIGTERM");
    grace ??= setTimeout(() => {
      kill("SIGKILL");
      child.stdout.destroy();
      child.stderr.destroy();
    }, GRACE_MS);
  };

  const chunks: Buffer[] = [];
  let bytes = 0;
  let [cut, timedOut, stderr] = [false, false, ""];
  child.stdout.on("data", (chunk: Buffer) => {
    const kept = chunk.subarray(0, command.maxOutputBytes - bytes);
    bytes += kept.length;
    if (kept.length > 0) chunks.push(kept);
    if (kept.length === chunk.length || cut) return;
    cut = true;
    end();
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr = (stderr + text).slice(-MAX_STDERR_CHARS);
  });
  // If git ends before it has read everything, its status is the error.
  child.stdin.on("error", () => {}).end(command.input ?? "");

  const timer = setTimeout(() => {
    timedOut = true;
    end();
  }, command.timeoutMs);
  command.signal.addEventListener("abort", end);
  try {
    const status = await ended;
    command.signal.throwIfAborted();
    return { status: cut || timedOut ? null : status, stdout: Buffer.concat(chunks), stderr, cut, timedOut };
  } finally {
    clearTimeout(timer);
    clearTimeout(grace);
    command.signal.removeEventListener("abort", end);
    // Kills the processes that git left running.
    kill("SIGKILL");
  }
}
