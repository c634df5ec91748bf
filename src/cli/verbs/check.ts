import type { Frame } from "./frame.ts";
import { examples, json, project } from "./options.ts";

export function addCheck({ does, terminal, verb }: Frame): void {
  verb("check")
    .addOption(project())
    .addOption(json())
    .addHelpText(
      "after",
      `\nExit status: 0 if every path would run, otherwise 1.\n${examples("corral check --project inbox")}`,
    )
    .action(does(async (options) => (await import("../project/check.ts")).checkVerb(options, terminal)));
}
