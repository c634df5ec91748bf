import { listCells, reapCells } from "../../operations/machine.ts";
import { stateDirFrom } from "../../state/state-dir.ts";
import { printJson, printList, say, type Terminal } from "../terminal/terminal.ts";

/** `corral ps`: every container of this state directory, whatever its state. Removes nothing. */
export async function psVerb(options: { readonly json?: boolean }, terminal: Terminal): Promise<number> {
  const cells = await listCells({ stateDir: stateDirFrom(terminal.env), engineEnv: terminal.env });
  printList(terminal, options.json, cells, {
    head: ["RUN", "WORKER", "STATE", "DRIVER", "CALLED BY", "OWNER", "CREATED"],
    rowOf: ({ run, worker, state, driver, parent, owner, ownerAlive, createdAt }) => {
      return [run, worker, state, driver, parent ?? "-", `${owner.pid}${ownerAlive ? "" : " (dead)"}`, createdAt];
    },
    none: "There are no containers.",
  });
  return 0;
}

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
