import type { Frame } from "./frame.ts";
import { askElsewhere, driver, examples, policy, project } from "./options.ts";
import { save, withoutProject } from "./without-project.ts";

export function addShell({ does, terminal, verb }: Frame): void {
  const shell = verb("shell");
  withoutProject(shell.addOption(project()))
    .addOption(save())
    .addOption(policy())
    .addOption(askElsewhere())
    .addOption(driver())
    .addHelpText(
      "after",
      `\nExit status: the shell's own.\n${examples("corral shell extract", "corral shell --image corral/documents --ro inbox", "echo 'ls /' | corral shell extract")}`,
    )
    .action(
      does(async (worker, options) => (await import("../session/shell.ts")).shellVerb(worker, options, terminal)),
    );
}
