import type { Frame } from "./frame.ts";
import { examples, json, policy, project } from "./options.ts";
import { oneWorker, withoutProject } from "./without-project.ts";

export function addExplain({ does, terminal, verb }: Frame): void {
  const explain = verb("explain").usage(
    "[options] <worker> [-- arguments...]\n       corral explain [options] -- <command...>",
  );
  withoutProject(explain.addOption(project()))
    .addOption(policy())
    .addOption(json())
    .addHelpText(
      "after",
      `\nExit status: 0, or 1 if the worker itself would be refused.\n${examples("corral explain triage", "corral explain --ro inbox --rw out -- ls /inbox", "corral explain triage --json | jq .tree.plan.mounts")}`,
    )
    .action(
      does(async (_worker, _words, options, command) => {
        const { worker, words } = oneWorker(command);
        return await (await import("../project/explain.ts")).explainVerb(worker, { ...options, words }, terminal);
      }),
    );
}
