import { within } from "../../platform/within.ts";
import type { Cell } from "../port/cell.ts";
import type { Start, StartRequest } from "../port/driver.ts";
import type { SessionCell } from "../port/exec.ts";
import { CommandServer, commandsDir } from "./command-server.ts";
import { SERVER_SCRIPT } from "./server-script.ts";

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
