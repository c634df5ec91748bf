import type { Frame } from "./frame.ts";
import { examples, json, policy, project } from "./options.ts";
import { oneWorker, withoutProject } from "./without-project.ts";

export function addInit({ does, terminal, verb }: Frame): void {
  verb("init")
    .option("--npm", "for ci: a project of npm, with two versions of Node")
    .option("--python", "for ci: a project of Python")
    .option("--make", "for ci: a project of C")
    .addOption(json("print what was written as JSON"))
    .addHelpText("after", INIT_HELP)
    .action(
      does(async (kind, dir, options) => {
        return await (await import("../project/init.ts")).initVerb(kind, dir ?? ".", options, terminal);
      }),
    );
}

const INIT_HELP = `
documents  turns strangers' PDF files into text
batch      runs one worker over many files
agent      lets a model read files and write notes; a script
           plays the model, so it needs no key
ci         tests a stranger's branch without a network, also
           for the project that is in the folder, and has a
           workflow of GitHub

Without a kind, you are asked at a terminal.

Exit status: 0, or 2 if one of the files already exists;
then nothing is written.
${examples("corral init documents", "corral init agent ~/notes", "corral init ci --npm tested")}`;

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

export function addWorkers({ does, group, terminal }: Frame): void {
  const workers = group("workers");
  workers
    .verb("ls", "List the workers of the project, or what is wrong in its files.", { isDefault: true })
    .addOption(project())
    .addOption(json())
    .addHelpText(
      "after",
      `\nExit status: 0, or 1 if a file has a mistake.\n${examples("corral workers ls", "corral workers ls --json | jq -r '.workers[].name'")}`,
    )
    .action(does(async (options) => (await import("../project/check.ts")).listWorkersVerb(options, terminal)));
}
