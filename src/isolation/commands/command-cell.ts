import { filledIn, textBeside } from "../../platform/text-beside.ts";
import { within } from "../../platform/within.ts";
import { COMMANDS_PATH, GATE_PATH } from "../plan/plan.ts";
import type { Cell, SessionCell } from "../port/cell.ts";
import type { Start, StartRequest } from "../port/driver.ts";
import { CommandServer, commandsDir } from "./command-server.ts";

/**
 * What a session's first process reads first. It is a shell that reads its script from its standard input, so each request
 * is a line of shell that Corral writes, with every word in quotes, and any number of bytes of it is read at once. Its answers
 * are lines on its standard output: `begun NAME PID KILLS`, `started NAME JOB`, `refused NAME`, `ended NAME CODE KILLS`,
 * `signalled NAME yes|no`, `counted NAME KILLS`. `KILLS` counts the processes that the kernel has killed for memory.
 *
 * It has the worker's own rights, because no process in a cell can change its user. The worker cannot influence it: it is process
 * 1, which no signal from inside its namespace ends or stops; its binary can be executed and not read, so the kernel lets
 * no process trace it or open its descriptors; the seccomp profile lets no process change its limits, priority or processors;
 * and commands inherit none of its descriptors. It never waits for a command, so it notices the end of its input at once, and
 * the cell ends with its orchestrator.
 *
 * A shell cannot start a command in the background as it would start it in the foreground: in the background it ignores SIGINT
 * and SIGQUIT, and nothing can undo that. So it starts the command as the first part of a pipeline in the foreground. The pipe
 * behind the second part cannot be made, because no more descriptors are allowed at that moment: the shell gives the pipeline up,
 * and does not wait for what it has started. That is a job of its own then, with the lowest number that is free
 * (docs/facts.md, fact: shell-in-the-background).
 *
 * A fork may fail, if the cell has as many processes as its limit allows: then there is no such job.
 */
const SERVER_SCRIPT = filledIn(textBeside(import.meta.url, "first-process.sh"), { GATE_PATH, COMMANDS_PATH });

/** How long to wait for the end of a cell in which nothing can be started any more. */
export const CELL_END_MS = 5000;

/** What a driver has made of a request, with the rest of what it needs itself. */
type Started<Parts> = (Parts & { readonly ok: true; readonly cell: Cell }) | Extract<Start, { ok: false }>;

export interface CommandDriver<Parts> {
  /** Starts and verifies the cell, and releases nothing. */
  start(request: StartRequest): Promise<Started<Parts>>;
  /** Writes to the first process of the cell. */
  write(parts: Parts, text: string): void;
  /** Starts a command at a terminal, as the worker's user. */
  execAtTerminal(parts: Parts & { readonly cell: Cell }, server: CommandServer): SessionCell["exec"];
}

/** Starts a cell whose first process starts commands. It is released at once, and then waits for them. */
export async function startCommandCell<Parts>(
  request: StartRequest,
  driver: CommandDriver<Parts>,
): Promise<Start<SessionCell>> {
  let server: CommandServer | undefined;
  const onOutput: StartRequest["onOutput"] = (stream, chunk) => {
    if (stream === "stdout") server?.add(chunk);
  };
  const started = await driver.start({ ...request, onOutput });
  if (!started.ok) return started;
  const { cell } = started;
  const write = (text: string): void => driver.write(started, text);
  server = new CommandServer({ dir: commandsDir(request.plan), write, exit: cell.exit });
  cell.release(Buffer.from(SERVER_SCRIPT));
  return { ok: true, cell: commandCell(cell, server, driver.execAtTerminal(started, server)) };
}

function commandCell(cell: Cell, server: CommandServer, execAtTerminal: SessionCell["exec"]): SessionCell {
  return {
    ...cell,
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await cell[Symbol.asyncDispose]();
    },
    exec: (request) => (request.tty === undefined ? server.exec(request) : execAtTerminal(request)),
    async signalAll(signal) {
      const gone = await server.signalAll(signal);
      if (!gone && signal === "SIGKILL")
        await within(
          cell.kill("SIGKILL").catch(() => {}),
          CELL_END_MS,
        );
      return gone;
    },
  };
}
