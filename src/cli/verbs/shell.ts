import type { Frame } from "./frame.ts";
import { examples, policy, project } from "./options.ts";

export function addShell({ does, terminal, verb }: Frame): void {
  verb("shell <worker>", "Open a shell in the container that a worker would get.")
    .addOption(project())
    .addOption(policy())
    .addHelpText(
      "after",
      `\nExit status: the shell's own.\n${examples("corral shell extract", "echo 'ls /' | corral shell extract")}`,
    )
    .action(
      does(async (worker, options) => (await import("../session/shell.ts")).shellVerb(worker, options, terminal)),
    );
}
