import type { Command } from "commander";
import type { Frame } from "./frame.ts";
import { approve, examples, IDS, json, project, repeatable } from "./options.ts";

export function addChanges({ does, group, terminal }: Frame): void {
  const changes = group("changes", "Review and apply what runs wrote and no person approved yet.");
  changes.command.addHelpText("after", CHANGES_HELP);
  const ofChanges = (usage: string, description: string): Command => changes.verb(usage, description).addOption(json());
  ofChanges("ls", "List the changesets that wait for approval.")
    .addOption(project())
    .option("--all-projects", "list those of every project")
    .action(does(async (options) => (await import("../changes/changes.ts")).listVerb(options, terminal)));
  ofChanges("show <id>", "List the changes of one changeset and their state.")
    .addOption(project())
    .action(does(async (id, options) => (await import("../changes/changes.ts")).showVerb(id, options, terminal)));
  ofChanges("diff <id>", "Compare one changeset with the files as they are now.")
    .addOption(project())
    .action(does(async (id, options) => (await import("../changes/changes.ts")).diffVerb(id, options, terminal)));
  ofChanges("apply [ids...]", "Show changes, ask, and apply them. Conflicts are never overwritten.")
    .addOption(project())
    .option("--all", "apply every changeset of the project, the oldest first")
    .addOption(repeatable("--only <path>", "apply only changes at or below this path of the worker", "all"))
    .addOption(approve())
    .option("--yes", "approve without being asked; rules of the project that deny still deny")
    .addHelpText(
      "after",
      "\nExit status: 0 if all was applied, 1 if something was not,\n2 wrong usage, 130 stopped by Ctrl-C. Changesets that were not\nreached then stay as they are.",
    )
    .action(does(async (ids, options) => (await import("../changes/changes.ts")).applyVerb(ids, options, terminal)));
  ofChanges("discard [ids...]", "Remove changesets and all that was written there.")
    .addOption(project())
    .option("--all", "discard every changeset of the project")
    .action(does(async (ids, options) => (await import("../changes/changes.ts")).discardVerb(ids, options, terminal)));
}

const CHANGES_HELP = `
Every command first finishes what an interrupted corral had
begun to apply.

${IDS}
${examples(
  "corral changes ls",
  "corral changes diff latest",
  "corral changes apply 0123456789ab --only /notes/today.md",
)}`;
