import { listWorkers } from "../../operations/workers.ts";
import { printableLine } from "../../text/visible.ts";
import type { ProjectOptions } from "../terminal/arguments.ts";
import { printJson, printList, say, type Terminal } from "../terminal/terminal.ts";

/** `corral workers ls`. Exit status 1 if a file of the project has a mistake. */
export async function listWorkersVerb(options: ProjectOptions, terminal: Terminal): Promise<number> {
  const { workers, problems } = await listWorkers(options.project, terminal.env);
  if (options.json) printJson(terminal, { workers, problems });
  else if (workers.length > 0 || problems.length === 0)
    printList(terminal, false, workers, {
      head: ["WORKER", "IMAGE OR MODEL", "POLICY", "CALLS", "DESCRIPTION"],
      rowOf: ({ name, description, image, model, policy, calls }) =>
        [name, model ?? image, policy ?? "-", calls.join(",") || "-", description].map((cell) =>
          printableLine(cell, 60),
        ),
      none: "There are no workers in this project.",
    });
  if (!options.json) for (const problem of problems) say(terminal, problem);
  return problems.length === 0 ? 0 : 1;
}
