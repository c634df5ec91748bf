import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import { Socket } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { COMMANDS_PATH } from "../plan/plan.ts";
import type { ExecRequest } from "../port/cell.ts";
import { EngineTrouble } from "../port/driver.ts";

/** How many commands may run at once: those of a session, and its connections to ports. The first process has a job for each. */
export const MAX_COMMANDS = 48;

/**
 * Runs a command as the worker. `name` names its pipes. Its variables are given by a program, because some of them (IFS) have a
 * meaning of their own in the shell; its program is looked up as if they had been set before.
 */
export function runRequest(name: string, { argv, cwd, env }: ExecRequest, hasInput: boolean): string {
  const input = hasInput ? `${COMMANDS_PATH}/${name}.in` : "/dev/null";
  const variables = Object.entries(env).map(([key, value]) => quotedForShell(`${key}=${value}`));
  const given = variables.length === 0 ? "" : `"$corral_gate" env ${variables.join(" ")} `;
  const path = env.PATH === undefined ? '"$PATH"' : quotedForShell(env.PATH);
  return (
    `corral_become() { exec "$corral_gate" setsid ${given}"$@"; }\n` +
    `corral_run ${name} ${quotedForShell(input)} ${quotedForShell(cwd)} ${path} ${argv.map(quotedForShell).join(" ")}\n`
  );
}

/** Asks whether a command has ended. There is no answer if it has not. */
export function lookRequest(job: number, pid: number, of: string): string {
  return `corral_look ${job} ${pid} ${of}\n`;
}

/** Signals everything else in the cell at once. */
export function signalRequest(name: string, signal: NodeJS.Signals): string {
  return `corral_signal ${signal.replace(/^SIG/, "")} ${name} ${MAX_COMMANDS}\n`;
}

/** A command as its cell knows it: the number of its process, and when that began, in ticks since the boot of the machine. */
export interface CellProcess {
  readonly pid: number;
  readonly start: number;
}

/** Signals what one command has started. `others`: the sessions of other commands, whatever of them is left. `isPaused`: all is stopped. */
export function endRequest(
  name: string,
  signal: NodeJS.Signals,
  { of, pid, start, job }: CellProcess & { readonly of: string; readonly job: number },
  { others, isPaused }: { readonly others: readonly number[]; readonly isPaused: boolean },
): string {
  return `corral_end ${signal.replace(/^SIG/, "")} ${name} ${of} ${job} ${pid} ${start} '${others.join(" ")}' ${isPaused ? "paused" : "''"}\n`;
}

/** Asks how many processes the kernel has killed for memory. */
export function countRequest(name: string): string {
  return `corral_count ${name}\n`;
}

/** Takes processes that have ended, and whose own parent has ended before them. */
export const REAP_REQUEST = "jobs -p > /dev/null\n";

/** One word of the shell, whatever is in it: line breaks and bytes that are not text too. */
export function quotedForShell(text: string): string {
  if (text.includes("\0")) throw new EngineTrouble("a command cannot have a NUL character in it");
  return `'${text.replaceAll("'", "'\\''")}'`;
}

export type PipeReply =
  | (CellProcess & { readonly kind: "begun"; readonly name: string; readonly oomKills: number | null })
  | { readonly kind: "started"; readonly name: string; readonly job: number }
  | { readonly kind: "refused"; readonly name: string }
  | { readonly kind: "ended"; readonly name: string; readonly code: number; readonly oomKills: number | null }
  | { readonly kind: "signalled"; readonly name: string; readonly left: boolean }
  | { readonly kind: "counted"; readonly name: string; readonly oomKills: number | null };

/** Null if the first process never writes such a line. */
export function parseAnswer(line: string): PipeReply | null {
  const [kind, name = "", first = "", second = "", third = ""] = line.split(" ");
  switch (kind) {
    case "begun":
      return { kind, name, pid: Number(first), oomKills: countOf(second), start: Number(third) };
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

/** For so many commands pipes are made at once: more each time, since the program that makes them takes longer to start than to make them. */
const BATCH = { first: 16, most: 64 } as const;
const MAKE_MS = 10_000;
/** Written ahead of the command that reads it: the pipe itself has less, and who fills it would be woken for each piece. */
const UNREAD = { highWaterMark: 256 * 1024 } as const;
const KINDS = ["in", "out", "err"] as const;
const { O_RDONLY, O_WRONLY, O_NONBLOCK, O_NOFOLLOW } = fs.constants;

/**
 * Named pipes in a directory that the cell sees and cannot change. A name is known to no process of the cell before its
 * command begins, and is removed then.
 */
export class PipeNames {
  readonly #dir: string;
  readonly #ready: string[] = [];
  #making: Promise<void> | null = null;
  #batch: number = BATCH.first;
  #isClosed = false;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Makes more ahead, if there are few. */
  prepare(): void {
    if (this.#isClosed || this.#ready.length > BATCH.first / 2 || this.#making !== null) return;
    this.#making = this.#make().finally(() => {
      this.#making = null;
    });
    // The command that waits for them gets the error.
    this.#making.catch(() => {});
  }

  async take(): Promise<CommandPipes> {
    for (;;) {
      const name = this.#ready.shift();
      this.prepare();
      if (name !== undefined) return new CommandPipes(this.#dir, name);
      if (this.#isClosed) throw new EngineTrouble("the cell has ended");
      await this.#making;
    }
  }

  /** Those of a command that has ended, and that no process has open any more: then nothing is left in them. */
  reuse({ name }: CommandPipes): void {
    this.#ready.unshift(name);
  }

  /** Makes no more. Afterwards the directory can be removed: nothing writes to it. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#making?.catch(() => {});
  }

  async #make(): Promise<void> {
    const names = Array.from({ length: this.#batch }, () => randomBytes(16).toString("hex"));
    const paths = names.flatMap((name) => KINDS.map((kind) => join(this.#dir, `${name}.${kind}`)));
    try {
      // The cell may have another user than this process. No other program reaches the directory.
      await promisify(execFile)("mkfifo", ["-m", "666", ...paths], { timeout: MAKE_MS });
    } catch (error) {
      throw new EngineTrouble(`pipes for a command could not be made: ${(error as Error).message}`, { cause: error });
    }
    this.#ready.push(...names);
    this.#batch = Math.min(BATCH.most, 2 * this.#batch);
  }
}

/** The three pipes of one command, opened on this side. */
export class CommandPipes {
  readonly name: string;
  readonly #dir: string;
  /** The other ends, which stand in for the command's until it has opened its own: else a pipe would have ended before. */
  #others: number[] = [];

  constructor(dir: string, name: string) {
    this.#dir = dir;
    this.name = name;
  }

  reader(kind: "out" | "err"): Socket {
    return new Socket({ fd: this.#reader(kind), readable: true, writable: false });
  }

  /** The same as a descriptor, which is closed when `take` has given it to a process. */
  lend(kind: "out", take: (fd: number) => void): void {
    const fd = this.#reader(kind);
    try {
      take(fd);
    } finally {
      fs.closeSync(fd);
    }
  }

  #reader(kind: "out" | "err"): number {
    const fd = this.#open(kind, O_RDONLY);
    this.#others.push(this.#open(kind, O_WRONLY));
    return fd;
  }

  writer(): Socket {
    this.#others.push(this.#open("in", O_RDONLY));
    const fd = this.#open("in", O_WRONLY);
    // All of the input may be written and closed before the command opens it, which needs a writer.
    this.#others.push(this.#open("in", O_WRONLY));
    return new Socket({ fd, readable: false, writable: true, ...UNREAD });
  }

  /** Where the cell's own end is opened, until {@link CommandPipes.letGo}. */
  pathOf(kind: (typeof KINDS)[number]): string {
    return join(this.#dir, `${this.name}.${kind}`);
  }

  /** The command has opened its own ends. */
  opened(): void {
    const others = this.#others;
    this.#others = [];
    for (const fd of others) fs.closeSync(fd);
  }

  /** The command has opened its own ends, or never will: the names are of no use any more. */
  letGo(): void {
    this.opened();
    for (const kind of KINDS) fs.rmSync(this.pathOf(kind), { force: true });
  }

  #open(kind: (typeof KINDS)[number], access: number): number {
    return fs.openSync(this.pathOf(kind), access | O_NONBLOCK | O_NOFOLLOW);
  }
}
