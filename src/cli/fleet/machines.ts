import { listMachines, type MachineOfFleet } from "../../operations/fleets.ts";
import { printableLine, toldApart } from "../../text/visible.ts";
import type { ProjectOptions } from "../terminal/arguments.ts";
import { columns, printJson, say, type Terminal } from "../terminal/terminal.ts";
import { fleetPlaceOf } from "./text.ts";

/** `corral fleet machines`. */
export async function machinesVerb(options: ProjectOptions, terminal: Terminal): Promise<number> {
  const machines = await listMachines(await fleetPlaceOf(options, terminal));
  if (options.json) printJson(terminal, machines);
  else if (machines.length === 0) say(terminal, "No machine takes part in the queue: `corral work` on one joins it.");
  else {
    const nameOf = toldApart(machines);
    const rows = machines.map((machine) => ({
      cells: [...cellsOf(machine, nameOf), printableLine(machine.labels.join(","), 100)],
      below: machine.fleets.flatMap(({ fleet, running, why }) => [
        ...(running === 0 ? [] : [`runs ${running} of fleet ${fleet}`]),
        ...(why === null ? [] : [`takes none of fleet ${fleet}: ${printableLine(why, 300)}`]),
      ]),
    }));
    terminal.stdout.write(`${table(rows, ["MACHINE", "RUNS", "RATE", "LABELS"]).join("\n")}\n`);
  }
  return 0;
}

/** The machines of one fleet: what each runs, how fast it was in the last minute, and why it takes none. */
export function machineLines(machines: readonly MachineOfFleet[]): string[] {
  const nameOf = toldApart(machines);
  return table(
    machines.map(({ runningInAll, why, ...machine }) => ({
      cells: [
        ...cellsOf(machine, nameOf),
        runningInAll === machine.running ? "" : `${runningInAll - machine.running} of other fleets`,
      ],
      below: why === null ? [] : [`takes none: ${printableLine(why, 300)}`],
    })),
  );
}

function cellsOf(
  { id, running, slots, recentRate }: Omit<MachineOfFleet, "runningInAll" | "why">,
  nameOf: (id: string) => string,
): string[] {
  // What it has claimed ahead waits there.
  const ahead = running > slots ? ` +${running - slots}` : "";
  return [
    printableLine(nameOf(id), 47),
    `${Math.min(running, slots)} of ${slots}${ahead}`,
    `${Math.round((recentRate ?? 0) * 60)}/min`,
  ];
}

interface Row {
  readonly cells: readonly string[];
  /** Sentences about it, which need lines of their own. */
  readonly below: readonly string[];
}

function table(rows: readonly Row[], head?: readonly string[]): string[] {
  if (rows.length === 0) return [];
  const all = [...(head === undefined ? [] : [{ cells: head, below: [] }]), ...rows];
  const lines = columns(all.map(({ cells }) => cells)).split("\n");
  return all.flatMap(({ below }, index) => [lines[index] ?? "", ...below.map((line) => `  ${line}`)]);
}
