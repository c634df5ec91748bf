import { availableParallelism } from "node:os";
import PQueue from "p-queue";
import { startCommandCell } from "../commands/command-cell.ts";
import { fillSecrets } from "../commands/session-scripts.ts";
import { NameFileSet } from "../network/name-files.ts";
import type { ServingCell } from "../port/cell.ts";
import type { Start, StartRequest } from "../port/driver.ts";
import type { SessionCell } from "../port/exec.ts";
import { Answers, servingCell } from "../serving/serving-cell.ts";
import { Launchers } from "./cells/launchers.ts";
import { OciFilters } from "./cells/oci-seccomp.ts";
import { runcSession } from "./cells/session.ts";
import { type StartOptions, startVerified } from "./cells/start.ts";
import type { RuncCells } from "./model/cells.ts";
import type { RuncOptions } from "./model/options.ts";

/** Cells that Corral makes with runc itself, without the Engine. */
export function runcCells(given: RuncOptions): RuncCells {
  const options: StartOptions = {
    ...given,
    nameFiles: new NameFileSet(given.namesDir),
    filters: new OciFilters(given.seccomp),
    launchers: new Launchers({ owner: given.maker.owner, paths: given.paths, programs: given.programs }),
  };
  // More starts at once do not end sooner: each needs a processor for most of its time.
  const starts = new PQueue({ concurrency: Math.max(4, 2 * availableParallelism()) });
  return {
    start: (request) => starts.add(() => start(options, request)),
    startSession: (request) =>
      starts.add(() => (request.plan.startsCommands === true ? startServer : startSession)(options, request)),
    startServing: (request) => starts.add(() => startServing(options, request)),
  };
}

async function start(options: StartOptions, request: StartRequest): Promise<Start> {
  const started = await startVerified(options, request, request.plan.keeper === undefined ? "at-once" : "lasting");
  return started.ok ? { ok: true, cell: started.cell } : started;
}

/** Its commands are another user than its gate, so a program of theirs makes the files of its secrets, before any command. */
async function startSession(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  const started = await startVerified(options, request, "lasting");
  if (!started.ok) return started;
  const { place, first } = started;
  const cell = runcSession(started.cell, place, () => first.isAlive());
  cell.release(new Uint8Array());
  const { plan, secrets } = request;
  try {
    if (plan.secrets !== undefined) await fillSecrets(cell, plan.secrets, secrets ?? new Map());
    return { ok: true, cell };
  } catch (error) {
    await cell[Symbol.asyncDispose]();
    throw error;
  }
}

function startServer(options: StartOptions, request: StartRequest): Promise<Start<SessionCell>> {
  return startCommandCell(request, {
    start: (asked) => startVerified(options, asked, "lasting"),
    write: ({ process }, text) => process.write(text),
    execAtTerminal: ({ cell, place, first }) => runcSession(cell, place, () => first.isAlive()).exec,
  });
}

/** Released at once: it then waits for the first item. */
async function startServing(
  options: StartOptions,
  request: Omit<StartRequest, "onOutput">,
): Promise<Start<ServingCell>> {
  const answers = new Answers();
  const started = await startVerified(options, { ...request, onOutput: answers.add.bind(answers) }, "lasting");
  if (!started.ok) return started;
  const cell = servingCell(started.cell, (text) => started.process.write(text), answers);
  cell.release(new Uint8Array());
  return { ok: true, cell };
}
