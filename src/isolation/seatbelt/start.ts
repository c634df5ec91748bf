import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, realpath, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path/posix";
import type { Readable } from "node:stream";
import { hasCode } from "../../platform/errno.ts";
import { textBeside } from "../../platform/text-beside.ts";
import { onAbort, within } from "../../platform/within.ts";
import { canonicalMounts } from "../../sandbox/access.ts";
import { consentOf } from "../../sandbox/approval.ts";
import type { Mount } from "../../sandbox/mount.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { describeViolation } from "../../sandbox/wording.ts";
import { holdHostExecuted } from "../sources/host-executed.ts";
import { seatbeltProfile } from "./profile.ts";

/** What of this machine starts a command in Seatbelt. */
export interface SeatbeltMachine {
  /** `sandbox-exec`. */
  readonly program: string;
  /** Where temporary directories are made. */
  readonly temporary: string;
  /** Corral is root there. */
  readonly isRoot: boolean;
}

export const MACOS_PROGRAM = "/usr/bin/sandbox-exec";

export interface SeatbeltRequest {
  readonly sandbox: Sandbox;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** A directory of the host, which the sandbox shows; null: its own temporary one. */
  readonly cwd: string | null;
  /** Directories of Corral's own, which exist. */
  readonly own: readonly string[];
  readonly stdin: "inherit" | "ignore";
  readonly timeoutMs: number;
  readonly outputBytes: number;
  readonly signal: AbortSignal;
  /** The next piece of a stream is read when it is done. */
  onOutput(stream: "stdout" | "stderr", bytes: Uint8Array): Promise<void>;
}

/** How a command ended, or why it did not begin, in words for people. */
export type SeatbeltEnd =
  | { readonly ok: false; readonly missing: readonly string[] }
  | {
      readonly ok: true;
      readonly status: "succeeded" | "failed" | "signaled" | "timed_out" | "output_limit" | "cancelled";
      readonly exitCode: number | null;
      readonly signal: NodeJS.Signals | null;
    };

const FIRST = textBeside(import.meta.url, "first.sh");
const PATH = "/usr/local/bin:/opt/homebrew/bin:/usr/bin:/bin:/usr/sbin:/sbin";
/** A process that left the group of the command can keep its output open for ever. */
const LAST_OUTPUT_MS = 1000;

/** Runs a command in macOS's Seatbelt. Before its first instruction, a program of Corral's own looks from inside whether a file outside is out of reach. */
export async function runInSeatbelt(request: SeatbeltRequest, machine: SeatbeltMachine): Promise<SeatbeltEnd> {
  const { sandbox: asked, own, command, env, cwd } = request;
  if (machine.isRoot && !asked.policy.hardening.rootUser)
    return { ok: false, missing: ["Corral is root, and so would be the command. Run it as an ordinary user"] };
  const held = await holdHostExecuted({ ...asked, mounts: asked.mounts.map(asDirect) });
  if (!held.ok) return { ok: false, missing: held.violations.map(describeViolation) };
  const sandbox = { ...asked, mounts: canonicalMounts([...asked.mounts, ...held.held]) };
  const dir = await realpath(await mkdtemp(join(machine.temporary, "corral-seatbelt-")));
  try {
    const temporary = join(dir, "own");
    const [home, tmp] = [join(temporary, "home"), join(temporary, "tmp")];
    for (const each of [temporary, home, tmp]) await mkdir(each);
    const outside = join(dir, "outside");
    await writeFile(outside, "Nothing in the sandbox reads this.\n", { mode: 0o600 });
    const places = await Promise.all(own.map((path) => realpath(path)));
    const profile = seatbeltProfile(sandbox, { temporary, own: places });
    if (!profile.ok) return profile;
    const faults = await Promise.all(sandbox.mounts.map(({ host }) => spellingFault(host)));
    const missing = faults.flatMap((fault) => fault ?? []);
    if (missing.length > 0) return { ok: false, missing };
    const file = join(dir, "profile.sb");
    await writeFile(file, profile.text, { mode: 0o600 });
    const { diskBytes = 0 } = sandbox.limits;
    const limits = [Math.floor(diskBytes / 1024), sandbox.policy.nofile].map(String);
    const words = ["-f", file, "/bin/sh", "-c", FIRST, "corral", outside, ...limits, ...command];
    return await ended(request, {
      program: machine.program,
      words,
      cwd: cwd ?? home,
      env: { PATH, HOME: home, TMPDIR: tmp, ...env },
    });
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** What may be changed at all is looked into for what this machine executes. */
function asDirect(mount: Mount): Mount {
  const { mode, approval } = mount;
  const isWritten =
    mode === "rw" && [consentOf(approval, "write"), consentOf(approval, "delete")].includes("pre_approved");
  return isWritten ? { ...mount, approval: { write: "pre_approved", delete: "pre_approved" } } : mount;
}

/** The disk of a Mac takes other spellings for the same name, and a rule fits only the one that the kernel has. */
export async function spellingFault(path: string): Promise<string | null> {
  for (let at = path; at !== "/"; at = dirname(at)) {
    if (!(await readdir(dirname(at))).includes(basename(at)))
      return `${path}: ${basename(at)} is not how the disk spells it; write it as \`ls\` shows it`;
  }
  return null;
}

interface Started {
  readonly program: string;
  readonly words: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

async function ended(request: SeatbeltRequest, { program, words, cwd, env }: Started): Promise<SeatbeltEnd> {
  const { stdin, timeoutMs, outputBytes, signal, onOutput } = request;
  // A session of its own: it has no terminal that it could type into, and its group is ended as a whole.
  const child = spawn(program, words, { cwd, env, detached: true, stdio: [stdin, "pipe", "pipe", "pipe"] });
  const [, stdout, stderr, report] = child.stdio as unknown as readonly [null, Readable, Readable, Readable];
  let why: "timed_out" | "output_limit" | "cancelled" | null = null;
  let isOver = false;
  const endGroup = (): void => {
    // The number may be another process's afterwards.
    if (!isOver) killGroup(child.pid);
  };
  const end = (reason: typeof why): void => {
    why ??= reason;
    endGroup();
  };
  const exited = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
  const timer = setTimeout(() => end("timed_out"), timeoutMs);
  using _ = onAbort(signal, () => end("cancelled"));
  let left = outputBytes;
  const pump = async (name: "stdout" | "stderr", stream: Readable): Promise<void> => {
    try {
      for await (const bytes of stream as AsyncIterable<Buffer>) {
        const fitting = bytes.subarray(0, left);
        left -= fitting.length;
        if (fitting.length < bytes.length) end("output_limit");
        if (fitting.length > 0) await onOutput(name, fitting);
      }
    } catch (error) {
      if (!hasCode(error, "ERR_STREAM_PREMATURE_CLOSE")) throw error;
    }
  };
  const output = Promise.all([pump("stdout", stdout), pump("stderr", stderr)]);
  try {
    const [said, [exitCode, killedBy]] = await Promise.all([saidOn(report), exited]);
    endGroup();
    isOver = true;
    await within(output, LAST_OUTPUT_MS);
    for (const stream of [stdout, stderr]) stream.destroy();
    await output;
    if (why === null && said !== "ready") return { ok: false, missing: [NOT_READY[said] ?? NEVER] };
    const status = why ?? (killedBy !== null ? "signaled" : exitCode === 0 ? "succeeded" : "failed");
    return { ok: true, status, exitCode, signal: killedBy };
  } finally {
    clearTimeout(timer);
    endGroup();
  }
}

const NOT_READY: Readonly<Record<string, string>> = {
  open: "in the sandbox, a file outside of it could be read or written",
  limits: "the limits of open files and of the size of a file could not be set",
};
const NEVER = "sandbox-exec did not start the command: its own words are above";

async function saidOn(pipe: Readable): Promise<string> {
  let said = "";
  for await (const piece of pipe) if (said.length < 100) said += String(piece);
  return said;
}

function killGroup(pid: number | undefined): void {
  try {
    if (pid !== undefined) process.kill(-pid, "SIGKILL");
  } catch (error) {
    // EPERM: macOS says so of a group in which all processes have ended.
    if (!hasCode(error, "ESRCH", "EPERM")) throw error;
  }
}
