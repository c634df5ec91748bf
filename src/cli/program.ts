import { Command, Option } from "commander";
import { packageVersion } from "./package.ts";
import type { Terminal } from "./terminal.ts";

export interface Program {
  /** Runs the verb that the arguments name; answers with its exit status. */
  run(args: readonly string[]): Promise<number>;
}

/** The verbs, their options and their help. Each verb's code is loaded only when it is used, to keep the start short. */
export function programFor(terminal: Terminal): Program {
  let status = 0;
  const corral = new Command("corral")
    .description("Runs untrusted work in containers that see only what was granted.")
    .version(packageVersion(), "--version", "print the version")
    .helpOption("--help", "print this help")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.stdout.write(text),
      writeErr: (text) => terminal.stderr.write(text),
    })
    .showHelpAfterError("(--help shows the usage)");
  const verb = (usage: string, description: string): Command =>
    corral.command(usage).description(description).helpOption("--help", "print this help");
  const does = <Args extends unknown[]>(act: (...args: Args) => Promise<number>) => {
    return async (...args: Args): Promise<void> => {
      status = await act(...args);
    };
  };

  verb("run <worker>", "Run a worker, with all the calls that it makes.")
    .addOption(project())
    .option("--input <json>", "JSON for the worker's standard input; @FILE reads a file, - reads standard input")
    .option("--attach <path[=name]>", "a file that the worker gets below /attachments; repeatable", collect, [])
    .addOption(policy())
    .addOption(approve())
    .option("--tree", "print the tree of calls on standard error at the end, also where that is no terminal")
    .addOption(json("print the result, with all calls, and nothing else"))
    .addHelpText("after", RUN_HELP)
    .action(does(async (worker, options) => (await import("./run.ts")).runVerb(worker, options, terminal)));

  verb("explain <worker>", "Show what a worker would get, and who took away the rest, without running it.")
    .addOption(project())
    .addOption(policy())
    .addOption(json())
    .addHelpText("after", examples("corral explain triage", "corral explain triage --json | jq .tree.plan.mounts"))
    .action(does(async (worker, options) => (await import("./explain.ts")).explainVerb(worker, options, terminal)));

  verb("check", "Find every call path of the project that would be refused, before anything runs.")
    .addOption(project())
    .addOption(json())
    .addHelpText(
      "after",
      `\nExit status: 0 where every path would run, 1 where one would not.${examples("corral check --project inbox")}`,
    )
    .action(does(async (options) => (await import("./check.ts")).checkVerb(options, terminal)));

  verb("tool [name] [input]", "Use one tool under a worker's sandbox; without a name, list the tools.")
    .option("--worker <name>", "under whose sandbox")
    .addOption(project())
    .addOption(policy())
    .addOption(approve())
    .addOption(json("print the whole answer as JSON"))
    .addHelpText("after", TOOL_HELP)
    .action(does(async (name, input, options) => (await import("./tool.ts")).toolVerb(name, input, options, terminal)));

  verb("shell <worker>", "Open a shell in a container that a worker would get.")
    .addOption(project())
    .addOption(policy())
    .addHelpText(
      "after",
      `\nExit status: the shell's own.${examples("corral shell extract", "echo 'ls /' | corral shell extract")}`,
    )
    .action(does(async (worker, options) => (await import("./shell.ts")).shellVerb(worker, options, terminal)));

  verb("ps", "List the containers of all runs that go on, or were left behind.")
    .addOption(json())
    .action(does(async (options) => (await import("./ps.ts")).psVerb(options, terminal)));

  verb("reap", "Remove what was left behind by orchestrators that are dead, and nothing else.")
    .addOption(json())
    .action(does(async (options) => (await import("./reap.ts")).reapVerb(options, terminal)));

  const images = verb("images", "The images that come with Corral.");
  images
    .command("build [names...]")
    .description("Build the images that are missing or out of date: all of them, or these and the base.")
    .helpOption("--help", "print this help")
    .addOption(json())
    .addHelpText("after", examples("corral images build", "corral images build python"))
    .action(does(async (names, options) => (await import("./images.ts")).buildVerb(names, options, terminal)));
  images
    .command("ls")
    .description("List the images, and whether each is there and up to date.")
    .helpOption("--help", "print this help")
    .addOption(json())
    .action(does(async (options) => (await import("./images.ts")).listVerb(options, terminal)));

  verb("doctor", "Tell whether this machine can run workers, and what is missing.")
    .addOption(json())
    .addHelpText("after", "\nExit status: 0 where nothing is missing, else 1.")
    .action(does(async (options) => (await import("./doctor.ts")).doctorVerb(options, terminal)));

  return {
    async run(args) {
      await corral.parseAsync([...args], { from: "user" });
      return status;
    },
  };
}

function project(): Option {
  return new Option("--project <dir>", "the project's folder").default(".");
}

function policy(): Option {
  return new Option("--policy <name>", "a policy in place of the project's");
}

function approve(): Option {
  const mode = new Option("--approve <mode>", "who agrees to what must be asked for, in place of the project's mode");
  return mode.choices(["interactive", "approve_all", "auto_deny"]);
}

function json(description = "print JSON"): Option {
  return new Option("--json", description);
}

function collect(value: string, before: readonly string[]): readonly string[] {
  return [...before, value];
}

function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}`).join("\n")}`;
}

const RUN_HELP = `
The worker's standard output comes on standard output; everything else is on standard error.

Exit status: the worker's own, or 124 timed out, 125 trouble with the Engine, 126 refused or denied,
130 cancelled, 137 killed for memory, 153 over a limit of output or disk, 128+n ended by signal n,
2 wrong usage.
${examples(
  "corral run triage --project inbox",
  `corral run extract --attach ~/downloads/paper.pdf=in.pdf --input '{"pages": 3}'`,
  "corral run extract --attach /data/paper.pdf --approve auto_deny --json",
)}`;
const TOOL_HELP = `
The input is JSON, @FILE, or - for standard input. The answer comes on standard output, a refusal on standard error.

Exit status: 0, or 126 refused or denied, 2 wrong usage; for exec, as of corral run.
${examples(
  `corral tool list_files '{"path": "/"}' --worker triage`,
  `corral tool exec '{"command": "wc -l /inbox/*"}' --worker triage --json`,
)}`;
