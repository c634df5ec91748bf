import type Docker from "dockerode";
import { within } from "../../platform/within.ts";
import { CELL_END_MS } from "../commands/command-cell.ts";
import type { CommandServer } from "../commands/command-server.ts";
import { OOM_KILLS_SCRIPT, parseOomKills } from "../commands/command-start.ts";
import { SCRIPT_MS, SIGNAL_ALL_SCRIPT } from "../commands/session-scripts.ts";
import { GATE_PATH, type Plan, type PlannedUser } from "../plan/plan.ts";
import type { Cell } from "../port/cell.ts";
import type { Exec, ExecExit, ExecRequest, SessionCell } from "../port/exec.ts";
import { execIn, type RawExit } from "./exec.ts";

/** A container whose first process only waits, and in which commands run one after another as the worker's user. */
export function dockerSession(cell: Cell, container: Docker.Container, { user, keeper = user }: Plan): SessionCell {
  /** A command can stop a script of its own user before that does anything: then the whole cell is ended from outside. */
  const script = async (as: PlannedUser, text: string, ...args: string[]): Promise<ScriptEnd> => {
    const argv = [GATE_PATH, "sh", "-c", text, GATE_PATH, ...args];
    const end = await within(scripted(container, as, argv), SCRIPT_MS);
    if (end !== null) return end;
    await within(
      cell.kill("SIGKILL").catch(() => {}),
      CELL_END_MS,
    );
    return { code: null, output: "" };
  };
  // The keeper's user: no command can signal a process of it.
  const askOomKills = async (): Promise<OomKills> => {
    const { code, output } = await script(keeper, OOM_KILLS_SCRIPT);
    return code === 0 ? { oomKills: parseOomKills(output) } : null;
  };
  return {
    ...cell,
    [Symbol.asyncDispose]: () => cell[Symbol.asyncDispose](),
    async exec(request: ExecRequest) {
      const exec = await execIn(container, user, request);
      return { ...exec, exit: exec.exit.then((exit) => judged(exit, cell, askOomKills)) };
    },
    async signalAll(signal) {
      const end = await script(user, SIGNAL_ALL_SCRIPT, signal === "SIGTERM" ? "TERM" : "KILL");
      return end.code === 0;
    },
  };
}

/** A command at a terminal, beside those that the first process starts. */
export async function execAtTerminal(
  cell: Cell,
  container: Docker.Container,
  { user }: Plan,
  server: CommandServer,
  request: ExecRequest,
): Promise<Exec> {
  const exec = await execIn(container, user, request);
  return { ...exec, exit: exec.exit.then((exit) => judged(exit, cell, () => server.oomKills())) };
}

/** Exit code of a program that a SIGKILL ended: from Corral, another program, or the kernel for memory. */
const KILLED = 137;

/** Null if the cell did not answer. */
type OomKills = { readonly oomKills: number | null } | null;

/**
 * A command that was killed may end before the Engine reports the end of its whole cell, so Corral asks the cell itself.
 * Only kills for memory since the command's own start count: an earlier command may have lost a child and continued
 * (docs/architecture.md, fact: oom-of-a-child).
 */
async function judged(exit: RawExit, cell: Cell, askOomKills: () => Promise<OomKills>): Promise<ExecExit> {
  if (exit.kind === "lost") return exit;
  const { oomKillsBefore, ...rest } = exit;
  if (exit.cellAlive && exit.code !== KILLED) return { ...rest, outOfMemory: false };
  const told = exit.cellAlive ? await askOomKills() : null;
  if (told !== null) {
    const { oomKills } = told;
    return { ...rest, outOfMemory: oomKills !== null && oomKillsBefore !== null && oomKills > oomKillsBefore };
  }
  const end = await within(cell.exit, CELL_END_MS);
  if (end?.kind === "lost") return end;
  return { ...rest, cellAlive: false, outOfMemory: end?.outOfMemory ?? false };
}

interface ScriptEnd {
  readonly code: number | null;
  readonly output: string;
}

/** Runs one of Corral's own scripts in a cell. `code` is null if the Engine or the cell could not start it. */
async function scripted(container: Docker.Container, user: PlannedUser, argv: string[]): Promise<ScriptEnd> {
  let output = "";
  try {
    const stdin = Buffer.alloc(0);
    const onOutput = (_: string, chunk: Buffer): void => {
      output += chunk.toString("latin1");
    };
    const exec = await execIn(container, user, { argv, cwd: "/", env: {}, stdin, onOutput });
    const exit = await exec.exit;
    return { code: exit.kind === "exited" ? exit.code : null, output };
  } catch {
    return { code: null, output };
  }
}
