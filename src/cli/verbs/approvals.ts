import type { Frame } from "./frame.ts";
import { examples, IDS, json } from "./options.ts";

export function addApprovals({ does, group, terminal }: Frame): void {
  const approvals = group("approvals");
  approvals
    .verb("ls", "List the questions that wait for an answer, of all projects.", { isDefault: true })
    .option("--decided", "list those that were decided, the newest first")
    .addOption(json())
    .action(does(async (options) => (await import("../consent/approvals.ts")).listApprovalsVerb(options, terminal)));
  approvals
    .verb("show <id>", "Show a question with all that it is about, and how it was decided.")
    .addOption(json())
    .addHelpText("after", `\n${IDS}`)
    .action(
      does(async (id, options) => (await import("../consent/approvals.ts")).showApprovalVerb(id, options, terminal)),
    );
  approvals
    .verb("decide <id> [answer]", "Answer a question: once, tree or no. At a terminal, without an answer, it asks.")
    .option("--digest <digest>", "decide only if the question is the one with this digest")
    .option("--directory <path>", "grant this directory around the requested one")
    .addOption(json())
    .addHelpText("after", DECIDE_HELP)
    .action(
      does(async (id, answer, options) =>
        (await import("../consent/approvals.ts")).decideVerb(id, answer, options, terminal),
      ),
    );
}

const DECIDE_HELP = `
${IDS}

  once   yes, for this request
  tree   yes, until this tree of runs ends
  no     no

The first answer counts, wherever it is given. Exit status 1
if the question was decided before.
${examples("corral approvals decide latest", "corral approvals decide 3f2a once")}`;
