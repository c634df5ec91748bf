import type { Frame } from "./frame.ts";
import { approve, askElsewhere, driver, examples, json, policy, project } from "./options.ts";
import { withoutProject } from "./without-project.ts";

export function addTool({ does, terminal, verb }: Frame): void {
  const tool = verb("tool").option("--worker <name>", "use the sandbox of this worker");
  withoutProject(tool.addOption(project()))
    .addOption(policy())
    .addOption(approve())
    .addOption(askElsewhere())
    .addOption(driver())
    .addOption(json("print the whole answer as JSON"))
    .addHelpText("after", TOOL_HELP)
    .action(
      does(async (name, input, options) =>
        (await import("../session/tool.ts")).toolVerb(name, input, options, terminal),
      ),
    );
}

const TOOL_HELP = `
The input is JSON, @FILE, or - for standard input. The
answer is on standard output, a refusal on standard error.

Exit status: 0, or 126 refused or denied, 2 wrong usage. For
exec, the same as corral run.
${examples(
  `corral tool list_files '{"path": "/"}' --worker triage`,
  `corral tool list_files '{"path": "/inbox"}' --ro inbox`,
  `corral tool exec '{"command": "wc -l /inbox/*"}' \\`,
  "    --worker triage --json",
)}`;
