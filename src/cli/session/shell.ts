import type { Exec } from "../../isolation/port/exec.ts";
import { endingOf } from "../../run/model/result.ts";
import type { Session } from "../../run/session/session.ts";
import { impliedOptionsIn } from "../declared/given-options.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, exitStatusOf } from "../terminal/exit-status.ts";
import type { Stop } from "../terminal/stop.ts";
import { say, type Terminal } from "../terminal/terminal.ts";
import { inSession, type SessionOptions } from "./opened-session.ts";

/** `corral shell`: an interactive shell in a cell of the worker's, or one that reads commands from standard input. */
export async function shellVerb(
  worker: string | undefined,
  options: Omit<SessionOptions, "worker">,
  terminal: Terminal,
): Promise<number> {
  if (worker === undefined && impliedOptionsIn(options).length === 0)
    throw new UsageError("name a worker, or say with --image, --ro and --rw what the shell gets");
  return await inSession({ ...options, worker }, terminal, (session, stop) => inShell(session, stop, terminal));
}

async function inShell(session: Session, stop: Stop, terminal: Terminal): Promise<number> {
  const { cell, plan } = await session.cell(stop.signal);
  const { stdin, stdout, stderr } = terminal;
  const interactive = stdin.isTTY === true && stdout.isTTY === true;
  const exec = await cell.exec({
    argv: [
      "sh",
      "-c",
      'if command -v bash > /dev/null; then exec bash "$@"; else exec sh "$@"; fi',
      "sh",
      ...(interactive ? ["-i"] : []),
    ],
    cwd: plan.workingDir,
    env: interactive ? { TERM: terminal.env.TERM ?? "xterm" } : {},
    ...(interactive ? { tty: { columns: stdout.columns, rows: stdout.rows } } : {}),
    onOutput: (stream, chunk) => written(stream === "stdout" ? stdout : stderr, chunk),
  });
  using _ = connected(exec, interactive, terminal);
  const cancelled = new Promise<null>((resolve) => {
    stop.signal.addEventListener("abort", () => resolve(null), { once: true });
  });
  const exit = await Promise.race([exec.exit, cancelled]);
  if (exit === null) return EXIT.cancelled;
  if (exit.kind === "lost") {
    say(terminal, `corral: ${exit.reason}`);
    return EXIT.engineTrouble;
  }
  const usage = { cpuMs: null, memoryBytesPeak: null };
  return exitStatusOf(endingOf({ kind: "exited", code: exit.code, outOfMemory: false, usage }, null));
}

/** A promise while the reader is behind: the shell waits too. */
function written(stream: NodeJS.WriteStream, chunk: Buffer): Promise<void> | undefined {
  if (stream.write(chunk) || !stream.writable) return undefined;
  return new Promise((resolve) => {
    const caughtUp = (): void => {
      stream.off("drain", caughtUp).off("close", caughtUp);
      resolve();
    };
    stream.on("drain", caughtUp).on("close", caughtUp);
  });
}

/** This terminal's keys and size are the shell's; Ctrl-C is a key that goes to it like any other. */
function connected(exec: Exec, interactive: boolean, { stdin, stdout }: Terminal): Disposable {
  const onData = (chunk: Buffer): void => exec.write(chunk);
  const onEnd = (): void => exec.closeInput();
  const onResize = (): void => void exec.resize({ columns: stdout.columns, rows: stdout.rows });
  if (interactive) stdin.setRawMode(true);
  stdin.on("data", onData).on("end", onEnd).resume();
  if (interactive) stdout.on("resize", onResize);
  return {
    [Symbol.dispose]() {
      if (interactive) stdin.setRawMode(false);
      stdin.off("data", onData).off("end", onEnd).pause();
      stdout.off("resize", onResize);
    },
  };
}
