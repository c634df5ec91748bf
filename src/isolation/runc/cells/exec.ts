import { type ChildProcessWithoutNullStreams, execFile, spawn } from "node:child_process";
import { readFile, readlink, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { SYSTEM_ENV } from "../../../files/host/system-program.ts";
import { written } from "../../../platform/byte-streams.ts";
import { commandArguments, FirstLine, processInCell } from "../../commands/command-cell.ts";
import type { CellProcess } from "../../commands/command-pipes.ts";
import type { ControlGroup } from "../../kernel/control-group.ts";
import { gateOf, type Plan, type PlannedUser } from "../../plan/plan.ts";
import { type Exec, type ExecRequest, KILLED, type TerminalSize } from "../../port/cell.ts";
import { EngineTrouble } from "../../port/driver.ts";
import { type CellPaths, type RuncOptions, runtimeWords } from "../model/layout.ts";
import { asByTheEngine } from "./launcher.ts";
import { ociProcess } from "./oci-config.ts";
import { errorsIn } from "./runc-process.ts";

/** A cell in which commands are started. */
export interface CommandPlace {
  readonly id: string;
  readonly plan: Plan;
  readonly folder: CellPaths;
  readonly group: ControlGroup;
  readonly options: Pick<RuncOptions, "programs" | "paths" | "apparmor">;
}

export type RuncExit =
  /** `oomKillsBefore`: processes that were killed for memory before it began; null if not known. */
  | { readonly kind: "exited"; readonly code: number; readonly oomKillsBefore: number | null }
  | { readonly kind: "lost"; readonly reason: string };

export type RawExec = Omit<Exec, "exit" | "signal"> & {
  readonly exit: Promise<RuncExit>;
  readonly process: () => Promise<CellProcess | null>;
};

/** Starts a command in a cell by `runc exec`, with the cell's own hardening and the rights of `user`. */
export async function runcExec(
  { id, plan, folder, group, options }: CommandPlace,
  user: PlannedUser,
  name: string,
  request: ExecRequest,
): Promise<RawExec> {
  const { programs, paths, apparmor } = options;
  const tty = request.tty !== undefined;
  const [file, log, pid] = [".json", ".log", ".pid"].map((end) => join(folder.dir, `${name}${end}`)) as [
    string,
    string,
    string,
  ];
  const started = { user, args: commandArguments(request, !tty), env: { ...plan.env, ...request.env }, terminal: tty };
  // Otherwise the command may begin before runc gives its terminal a size.
  const size = request.tty && { consoleSize: { height: request.tty.rows, width: request.tty.columns } };
  await writeFile(file, JSON.stringify({ ...ociProcess(plan, apparmor, started), ...size }), {
    mode: 0o600,
    flag: "wx",
  });
  const oomKillsBefore = group.oomKills();
  const argv = [
    ...asByTheEngine(gateOf(plan)),
    programs.runtime.path,
    ...runtimeWords(programs.runtime.kind),
    "--root",
    paths.state,
    "--log",
    log,
    "--log-format",
    "json",
    "exec",
    "--process",
    file,
    "--pid-file",
    pid,
    id,
  ];
  const child =
    request.tty !== undefined ? atTerminal(argv, request.tty) : spawn(argv[0] ?? "", argv.slice(1), OWN_SESSION);
  // A command that ends without reading its input breaks the pipe; its exit says how it ended.
  child.stdin.on("error", () => {});
  const beginning = tty ? null : new FirstLine();
  deliver(child, beginning, request.onOutput);
  const exit = new Promise<RuncExit>((resolve) => {
    child.once("error", (error) => resolve({ kind: "lost", reason: error.message }));
    child.once("close", (code, signal) => {
      void judged(code, signal, beginning, log).then(async (end) => {
        await Promise.all([file, log, pid].map((path) => rm(path, { force: true })));
        resolve(end.kind === "exited" ? { ...end, oomKillsBefore } : end);
      });
    });
  });
  if (request.stdin !== undefined) child.stdin.end(request.stdin);
  const resize = (size: TerminalSize): Promise<void> => (tty ? resized(child, size) : Promise.resolve());
  return {
    exit,
    write: (chunk) => written(child.stdin, chunk),
    closeInput: () => void child.stdin.end(),
    resize,
    process: async () => await processInCell(Number(await readFile(pid, "utf8"))),
  };
}

/** In a session of its own no key of this process's terminal signals it. */
const OWN_SESSION = { stdio: "pipe", env: SYSTEM_ENV, detached: true } as const;

type Judged = { readonly kind: "exited"; readonly code: number } | Extract<RuncExit, { kind: "lost" }>;

async function judged(
  code: number | null,
  signal: NodeJS.Signals | null,
  beginning: FirstLine | null,
  log: string,
): Promise<Judged> {
  if (code === null) return { kind: "lost", reason: `runc was ended from outside (${signal ?? "no signal"})` };
  const error = errorsIn(await readFile(log, "utf8").catch(() => ""));
  if (error !== null) return { kind: "lost", reason: `runc could not run the command: ${error}` };
  // A command that is killed may end before it has said that it began.
  if (beginning !== null && !beginning.hasBegun && code !== KILLED)
    return { kind: "lost", reason: `the command did not start: ${beginning.line ?? "no reason given"}` };
  return { kind: "exited", code };
}

/** Pauses both streams while the caller still processes what was read: the command waits, and memory does not grow. */
function deliver(
  child: ChildProcessWithoutNullStreams,
  beginning: FirstLine | null,
  onOutput: ExecRequest["onOutput"],
): void {
  const streams = ["stdout", "stderr"] as const;
  let taking = 0;
  for (const name of streams) {
    child[name].on("error", () => {});
    child[name].on("data", (chunk: Buffer) => {
      const printed = name === "stdout" && beginning !== null ? beginning.add(chunk) : chunk;
      const taken = printed.length === 0 ? undefined : onOutput(name, printed);
      if (taken === undefined) return;
      taking += 1;
      for (const each of streams) child[each].pause();
      void taken.then(() => {
        taking -= 1;
        if (taking === 0) for (const each of streams) child[each].resume();
      });
    });
  }
}

/**
 * `script` makes a terminal for runc, which passes keys and sizes on to that of the command. It has its size before the command begins, and is raw: runc sets that when the
 * command may print already, whose line breaks would then be changed twice.
 */
function atTerminal(argv: readonly string[], { rows, columns }: TerminalSize): ChildProcessWithoutNullStreams {
  const line = argv.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(" ");
  return spawn(
    "script",
    [
      "--quiet",
      "--flush",
      "--return",
      "--command",
      `stty rows ${rows} cols ${columns} raw -echo; exec ${line}`,
      "/dev/null",
    ],
    {
      ...OWN_SESSION,
      env: { ...SYSTEM_ENV, SHELL: "/bin/sh" },
    },
  );
}

const MAX_LOOKS = 200;
const LOOK_MS = 5;

/** Sets the size of the terminal that `script` made, from its other side. One that has ended has none. */
async function resized(child: ChildProcessWithoutNullStreams, size: TerminalSize): Promise<void> {
  const { pid } = child;
  if (pid === undefined) throw new EngineTrouble("a terminal needs the program `script` of util-linux");
  for (let looks = 0; looks < MAX_LOOKS && child.exitCode === null; looks += 1) {
    const terminal = await terminalBelow(pid);
    if (terminal !== null) {
      const args = ["-F", terminal, "rows", String(size.rows), "cols", String(size.columns)];
      return await new Promise((done) => execFile("stty", args, { env: SYSTEM_ENV }, () => done()));
    }
    await pause(LOOK_MS);
  }
}

/** The terminal of the only child of a process; null if it has none yet. */
async function terminalBelow(pid: number): Promise<string | null> {
  const child = (await readFile(`/proc/${pid}/task/${pid}/children`, "latin1").catch(() => "")).trim().split(" ")[0];
  if (child === undefined || child === "") return null;
  const terminal = await readlink(`/proc/${child}/fd/0`).catch(() => "");
  return /^\/dev\/pts\/\d+$/.test(terminal) ? terminal : null;
}
