import type { Exec } from "../../isolation/port/cell.ts";
import { written } from "../../platform/byte-streams.ts";
import { endingOf } from "../../run/model/result.ts";
import type { Session } from "../../run/session/session.ts";
import { impliedOptionsIn } from "../declared/given-options.ts";
import { UsageError } from "../terminal/arguments.ts";
import { EXIT, exitStatusOf, type Stop, say, type Terminal } from "../terminal/terminal.ts";
import { workerTextTo } from "../terminal/worker-text.ts";
import { inSession, type SessionOptions } from "./tool.ts";

/** `corral shell`: an interactive shell in a cell of the worker's, or one that reads commands from standard input. */
export async function shellVerb(
  worker: string | undefined,
  { raw = false, ...options }: Omit<SessionOptions, "worker"> & { readonly raw?: boolean },
  terminal: Terminal,
): Promise<number> {
  if (worker === undefined && impliedOptionsIn(options).length === 0)
    throw new UsageError("name a worker, or say with --image, --ro and --rw what the shell gets");
  return await inSession({ ...options, worker }, terminal, (session, stop) => inShell(session, stop, terminal, raw));
}

async function inShell(session: Session, stop: Stop, terminal: Terminal, raw: boolean): Promise<number> {
  const { cell, plan } = await session.cell(stop.signal);
  const { stdin, stdout, stderr } = terminal;
  const interactive = stdin.isTTY === true && stdout.isTTY === true;
  // Editors and pagers need the whole terminal.
  const texts = { stdout: workerTextTo(stdout, { raw, isScreen: interactive }), stderr: workerTextTo(stderr, { raw }) };
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
    onOutput: (stream, chunk) => written(stream === "stdout" ? stdout : stderr, texts[stream].piece(chunk)),
  });
  using _ = connected(exec, interactive, terminal);
  const cancelled = new Promise<null>((resolve) => {
    stop.signal.addEventListener("abort", () => resolve(null), { once: true });
  });
  const exit = await Promise.race([exec.exit, cancelled]);
  stdout.write(texts.stdout.end());
  stderr.write(texts.stderr.end());
  if (exit === null) return EXIT.cancelled;
  if (exit.kind === "lost") {
    say(terminal, `corral: ${exit.reason}`);
    return EXIT.engineTrouble;
  }
  const usage = { cpuMs: null, memoryBytesPeak: null };
  return exitStatusOf(endingOf({ kind: "exited", code: exit.code, outOfMemory: false, usage }, null));
}

/** This terminal's keys and size are the shell's; Ctrl-C is a key that goes to it like any other. */
function connected(exec: Exec, interactive: boolean, { stdin, stdout }: Terminal): Disposable {
  const onData = (chunk: Buffer): void => void exec.write(chunk);
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
