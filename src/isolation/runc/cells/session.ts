import { within } from "../../../platform/within.ts";
import { CELL_END_MS } from "../../commands/command-cell.ts";
import { SCRIPT_MS, SIGNAL_ALL_SCRIPT } from "../../commands/command-start.ts";
import { GATE_PATH } from "../../plan/plan.ts";
import { type Cell, type ExecExit, type ExecRequest, KILLED, type SessionCell } from "../../port/cell.ts";
import { type CommandPlace, type RuncExit, runcExec } from "./exec.ts";

/** A cell whose first process only waits, and in which commands run one after another as the worker's user. */
export function runcSession(cell: Cell, place: CommandPlace, isAlive: () => boolean): SessionCell {
  const { user } = place.plan;
  let commands = 0;
  const started = (request: ExecRequest) => {
    commands += 1;
    return runcExec(place, user, `command-${commands}`, request);
  };
  return {
    ...cell,
    [Symbol.asyncDispose]: () => cell[Symbol.asyncDispose](),
    async exec(request) {
      const exec = await started(request);
      return { ...exec, exit: exec.exit.then((exit) => judged(exit, cell, place, isAlive)) };
    },
    async signalAll(signal) {
      const argv = [GATE_PATH, "sh", "-c", SIGNAL_ALL_SCRIPT, GATE_PATH, signal === "SIGTERM" ? "TERM" : "KILL"];
      const ended = started({ argv, cwd: "/", env: {}, stdin: Buffer.alloc(0), onOutput: () => {} });
      const exit = await within(
        ended.then(
          (exec) => exec.exit,
          () => null,
        ),
        SCRIPT_MS,
      );
      if (exit !== null) return exit.kind === "exited" && exit.code === 0;
      // A command can stop a program of its own user before that does anything: then the whole cell is ended from outside.
      await within(
        cell.kill("SIGKILL").catch(() => {}),
        CELL_END_MS,
      );
      return false;
    },
  };
}

/**
 * Only kills for memory since the command's own start count: an earlier command may have lost a child and continued
 * (docs/facts.md, fact: oom-of-a-child).
 */
async function judged(exit: RuncExit, cell: Cell, { group }: CommandPlace, isAlive: () => boolean): Promise<ExecExit> {
  if (exit.kind === "lost") return exit;
  const { code, oomKillsBefore } = exit;
  if (!isAlive()) {
    const end = await within(cell.exit, CELL_END_MS);
    if (end?.kind === "lost") return end;
    return { kind: "exited", code, cellAlive: false, outOfMemory: end?.outOfMemory ?? false };
  }
  const oomKills = group.oomKills();
  const outOfMemory = code === KILLED && oomKills !== null && oomKillsBefore !== null && oomKills > oomKillsBefore;
  return { kind: "exited", code, cellAlive: true, outOfMemory };
}
