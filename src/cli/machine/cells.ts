import { listCells, reapCells } from "../../operations/machine.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { durationText, roughBytesText } from "../../text/amounts.ts";
import { printableLine } from "../../text/visible.ts";
import { printJson, printList, say, type Terminal } from "../terminal/terminal.ts";

/** `corral ps`: every container of this state directory, whatever its state. Removes nothing. */
export async function psVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const cells = await listCells({ stateDir: stateDirFrom(terminal.env), engineEnv: terminal.env });
  const { isTTY, columns: room = DEFAULT_COLUMNS } = terminal.stdout;
  const isNarrow = isTTY && room < WIDE_COLUMNS;
  printList(terminal, options.json, cells, {
    head: ["RUN", "WORKER", "STATE", "MEMORY", "CPU", ...(isNarrow ? [] : ["DRIVER", "CALLED BY", "OWNER", "CREATED"])],
    rowOf: ({ run, worker, state, memoryBytes, cpuMs, driver, parent, owner, ownerAlive, createdAt }) => [
      run,
      printableLine(worker, isNarrow ? NARROW_NAME : 64),
      isNarrow && !ownerAlive ? "owner dead" : state,
      memoryBytes === null ? "-" : roughBytesText(memoryBytes),
      cpuMs === null ? "-" : durationText(cpuMs),
      ...(isNarrow ? [] : [driver, parent ?? "-", `${owner.pid}${ownerAlive ? "" : " (dead)"}`, createdAt]),
    ],
    none: "There are no containers.",
  });
  return 0;
}

const DEFAULT_COLUMNS = 80;
/** A narrower terminal would break the lines of the whole table: it gets what a person looks for first. */
const WIDE_COLUMNS = 140;
const NARROW_NAME = 16;

/** `corral reap`: removes what dead orchestrators left behind, and lists it. */
export async function reapVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const { env, stdout } = terminal;
  const reaped = await reapCells({ stateDir: stateDirFrom(env), engineEnv: env });
  if (options.json) {
    printJson(terminal, reaped);
    return 0;
  }
  const lines = [
    ...reaped.cells.map((run) => `container of run ${run}`),
    ...reaped.volumes.map((name) => `volume ${name}`),
    ...reaped.directories.map((name) => `directory ${name}`),
  ];
  if (lines.length === 0) say(terminal, "There is nothing to remove.");
  for (const line of lines) stdout.write(`removed ${line}\n`);
  return 0;
}
