import { type Command, Option } from "commander";
import { approve, examples, type Frame, IDS, json, project, repeatable } from "./frame.ts";

export function addChanges({ does, group, terminal }: Frame): void {
  const changes = group("changes");
  changes.command.addHelpText("after", CHANGES_HELP);
  const ofChanges = (usage: string, description: string): Command => changes.verb(usage, description).addOption(json());
  ofChanges("ls", "List the changesets that wait for approval.")
    .addOption(project())
    .option("--all-projects", "list those of every project")
    .addOption(fleet())
    .action(does(async (options) => (await import("../changes/changes.ts")).listChangesVerb(options, terminal)));
  ofChanges("show [id]", "List the changes of one changeset, or of a fleet, and their state.")
    .addOption(project())
    .addOption(fleet())
    .action(
      does(async (id, options) => (await import("../changes/changes.ts")).showChangesVerb(id, options, terminal)),
    );
  ofChanges("diff [id]", "Compare one changeset, or those of a fleet, with the files as they are now.")
    .addOption(project())
    .addOption(fleet())
    .action(does(async (id, options) => (await import("../changes/changes.ts")).diffVerb(id, options, terminal)));
  ofChanges("apply [ids...]", "Show changes, ask, and apply them. Conflicts are never overwritten.")
    .addOption(project())
    .option("--all", "apply every changeset of the project, the oldest first")
    .addOption(fleet())
    .addOption(repeatable("--only <path>", "apply only changes at or below this path of the worker", "all"))
    .addOption(approve())
    .option("--digest <sha256>", "apply nothing unless the changeset is the one that `show --json` printed")
    .option("--yes", "approve without being asked; rules of the project that deny still deny")
    .addHelpText("after", APPLY_HELP)
    .action(does(async (ids, options) => (await import("../changes/apply.ts")).applyVerb(ids, options, terminal)));
  ofChanges("discard [ids...]", "Remove changesets and all that was written there.")
    .addOption(project())
    .option("--all", "discard every changeset of the project")
    .addOption(fleet())
    .option("--yes", "do not ask before --all or --fleet")
    .action(does(async (ids, options) => (await import("../changes/targets.ts")).discardVerb(ids, options, terminal)));
}

function fleet(): Option {
  return new Option("--fleet <id>", "take the changesets of all items of this fleet");
}

const APPLY_HELP = `
At a terminal it shows each file and asks: apply it, skip it,
apply the rest of its changeset or of all, or stop. Answers
take effect at once. The project's rules come first. Without a
terminal only what rules approve is applied, or all with --yes.

Exit status: 0 if all was applied, 1 if something was not,
2 wrong usage, 130 stopped by Ctrl-C. What was applied then
stays applied, and the rest waits.`;

const CHANGES_HELP = `
Every command first finishes what an interrupted corral had
begun to apply.

${IDS}
${examples(
  "corral changes ls",
  "corral changes diff latest",
  "corral changes apply 0123456789ab --only /notes/today.md",
  "corral changes ls --fleet latest",
)}`;

export function addGrants({ does, group, terminal }: Frame): void {
  const grants = group("grants");
  grants
    .verb("ls", "List the grants of all running workers.", { isDefault: true })
    .addOption(json())
    .action(does(async (options) => (await import("../consent/approvals.ts")).listGrantsVerb(options, terminal)));
  grants
    .verb("add <run> <folder>", "Grant a directory to a running worker with `dynamic`, without being asked.")
    .addOption(json())
    .addHelpText("after", ADD_HELP)
    .action(
      does(async (run, directory, options) =>
        (await import("../consent/approvals.ts")).addGrantVerb(run, directory, options, terminal),
      ),
    );
  grants
    .verb("revoke <id>", "Revoke a grant. The worker does not get it again while its corral runs.")
    .addOption(json())
    .addHelpText("after", `\n${IDS}\n${examples("corral grants revoke latest")}`)
    .action(does(async (id, options) => (await import("../consent/approvals.ts")).revokeVerb(id, options, terminal)));
}

const ADD_HELP = `
The directory is named as the worker would ask for it: by the
project (/inbox), or by a path of this machine. \`:rw\` lets the
worker write. All rules of a request hold, and its tools have it
at once.

${IDS}
${examples("corral grants add latest ../shared", "corral grants add 3f2a ./src:rw")}`;

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
