import type { Frame } from "./frame.ts";
import { examples, json, policy, project } from "./options.ts";

export function addExplain({ does, terminal, verb }: Frame): void {
  verb("explain <worker>", "Show what a worker would get and what removed the rest, without running it.")
    .addOption(project())
    .addOption(policy())
    .addOption(json())
    .addHelpText(
      "after",
      `\nExit status: 0, or 1 if the worker itself would be refused.\n${examples("corral explain triage", "corral explain triage --json | jq .tree.plan.mounts")}`,
    )
    .action(
      does(async (worker, options) => (await import("../project/explain.ts")).explainVerb(worker, options, terminal)),
    );
}
