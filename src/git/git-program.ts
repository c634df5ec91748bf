import { spawn } from "node:child_process";
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { join } from "node:path";
import type { GitProtocol } from "../declarations/git/repo.ts";
import { SYSTEM_PATH } from "../secrets/read-secret.ts";

/** The whole environment of git: nothing is inherited, and its home is an empty directory of Corral's own. */
function gitEnvironment(home: string, protocol: GitProtocol): Readonly<Record<string, string>> {
  return {
    PATH: SYSTEM_PATH,
    HOME: home,
    XDG_CONFIG_HOME: home,
    LC_ALL: "C",
    TZ: "UTC",
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_SYSTEM: "/dev/null",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    GIT_ALLOW_PROTOCOL: protocol,
    GIT_OPTIONAL_LOCKS: "0",
    GIT_NO_REPLACE_OBJECTS: "1",
    GIT_LITERAL_PATHSPECS: "1",
  };
}

/**
 * The settings of every git process. They override the configuration of any repository, so that no file can make git run a
 * program (hooks, a file system monitor, helpers, another ssh).
 */
const GIT_SETTINGS: readonly string[] = [
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  "core.attributesFile=/dev/null",
  "core.excludesFile=/dev/null",
  "core.sshCommand=ssh -oBatchMode=yes -oPermitLocalCommand=no -oClearAllForwardings=yes",
  "core.askPass=",
  "core.pager=cat",
  "core.protectHFS=true",
  "core.protectNTFS=true",
  "credential.helper=",
  "protocol.allow=never",
  "protocol.ext.allow=never",
  // A secret for one host must not be sent to another.
  "http.followRedirects=false",
  "http.lowSpeedLimit=1000",
  "http.lowSpeedTime=60",
  "fetch.recurseSubmodules=false",
  "push.recurseSubmodules=no",
  "submodule.recurse=false",
  "gc.autoDetach=false",
  "gc.pruneExpire=2.hours.ago",
  "maintenance.auto=false",
];

/** The remote end of a push to a path on this machine. It must not run programs of that repository's configuration either. */
export const LOCAL_RECEIVE_PACK = [
  "git",
  ...["hooksPath=/dev/null", "fsmonitor=false", "alternateRefsCommand=true"].map((one) => `-c core.${one}`),
  ...["autogc=false", "denyCurrentBranch=refuse"].map((one) => `-c receive.${one}`),
  "receive-pack",
].join(" ");

/* The limits of operations on repositories, for all callers. */

/** The largest file that is pulled or staged. */
export const MAX_FILE_BYTES = 50 * 1024 * 1024;
export const MAX_PULLED_FILES = 10_000;
export const MAX_PULLED_BYTES = 256 * 1024 * 1024;
export const MAX_STAGED_FILES = 1000;
/** For all commits of one tree of runs together. */
export const MAX_TREE_STAGED_BYTES = 256 * 1024 * 1024;
/** For one tree of runs, at one time. */
export const MAX_STAGED_COMMITS = 20;
/** The most names of each kind in an answer. */
export const MAX_LISTED = 200;

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
