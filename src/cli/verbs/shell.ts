import type { Frame } from "./frame.ts";
import { askElsewhere, driver, examples, policy, project, raw } from "./options.ts";
import { save, withoutProject } from "./without-project.ts";

export function addShell({ does, terminal, verb }: Frame): void {
  const shell = verb("shell");
  withoutProject(shell.addOption(project()))
    .addOption(save())
    .addOption(policy())
    .addOption(askElsewhere())
    .addOption(driver())
    .addOption(raw())
    .addHelpText(
      "after",
      `${SHELL_HELP}${examples("corral shell extract", "corral shell --image corral/documents --ro inbox", "echo 'ls /' | corral shell extract")}`,
    )
    .action(
      does(async (worker, options) => (await import("../session/shell.ts")).shellVerb(worker, options, terminal)),
    );
}

const SHELL_HELP = `
At a terminal, programs of the shell have it whole, as editors
need: they can also change its title, and in some terminals
the clipboard. Its modes are reset at the end. For output that
you do not trust, use \`corral run\`, or give the commands on
standard input: then control sequences are shown as text.

Exit status: the shell's own.
`;
