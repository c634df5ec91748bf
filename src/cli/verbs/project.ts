import { FILES_OF, SCHEMA_KINDS } from "../../declarations/editor/kinds.ts";
import { COMPLETED_SHELLS } from "../shell/complete.ts";
import { examples, type Frame, json, oneOf, policy, project } from "./frame.ts";
import { oneWorker, withoutProject } from "./without-project.ts";

export function addInit({ does, terminal, verb }: Frame): void {
  verb("init")
    .option("--npm", "for ci: a project of npm, with two versions of Node")
    .option("--python", "for ci: a project of Python")
    .option("--go", "for ci: a project of Go")
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
    .action(does(async (options) => (await import("../project/explain.ts")).checkVerb(options, terminal)));
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
    .action(does(async (options) => (await import("../project/explain.ts")).listWorkersVerb(options, terminal)));
}

export function addSchema({ does, terminal, verb }: Frame): void {
  oneOf(verb("schema"), "the kind of file", SCHEMA_KINDS)
    .option("--write <folder>", "write all of them into this folder, and print the settings for editors")
    .addHelpText("after", SCHEMA_HELP)
    .action(does(async (kind, options) => (await import("../shell/schema.ts")).schemaVerb(kind, options, terminal)));
}

const SCHEMA_HELP = `
Kinds: ${SCHEMA_KINDS.map((kind) => `${kind} (${FILES_OF[kind]})`).join(",\n  ")}
${examples("corral schema project | jq .properties.approval", "corral schema --write .schemas")}`;

export function addCompletion({ does, terminal, verb }: Frame): void {
  oneOf(verb("completion"), "the shell", COMPLETED_SHELLS)
    .addHelpText(
      "after",
      examples('eval "$(corral completion bash)"', "corral completion fish > ~/.config/fish/completions/corral.fish"),
    )
    .action(does(async (shell) => (await import("../shell/complete.ts")).completionVerb(shell, terminal)));

  // The scripts call it; it is not for people.
  verb("complete").action(
    does(async (shell, words, _, command) =>
      (await import("../shell/complete.ts")).completeVerb(shell, words, command.parent, terminal),
    ),
  );
}
