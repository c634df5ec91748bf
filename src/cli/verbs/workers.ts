import type { Frame } from "./frame.ts";
import { examples, json, project } from "./options.ts";

export function addWorkers({ does, group, terminal }: Frame): void {
  const workers = group("workers");
  workers
    .verb("ls", "List the workers of the project, or what is wrong in its files.", { isDefault: true })
    .addOption(project())
    .addOption(json())
    .addHelpText(
      "after",
      `\nExit status: 0, or 1 if a file has a mistake.\n${examples("corral workers ls", "corral workers ls --json | jq -r '.workers[].name'")}`,
    )
    .action(does(async (options) => (await import("../project/workers.ts")).listWorkersVerb(options, terminal)));
}
