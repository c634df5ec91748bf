import { Command, CommanderError, InvalidArgumentError, Option } from "commander";
import { packageVersion } from "../operations/package-version.ts";
import { APPROVAL_MODE_NAMES } from "../sandbox/approval.ts";
import { EXIT } from "./terminal/exit-status.ts";
import { failureOf } from "./terminal/failure.ts";
import { say, type Terminal } from "./terminal/terminal.ts";

/** The whole command line: arguments in, exit status out. Every error ends here. */
export async function main(args: readonly string[], terminal: Terminal): Promise<number> {
  const program = programFor(terminal);
  try {
    return await program.run(args);
  } catch (error) {
    // Commander has already said what is wrong, or printed the help or the version that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : EXIT.wrongUsage;
    const { text, status } = failureOf(error, terminal.env);
    say(terminal, text);
    return status;
  }
}

interface Program {
  /** Runs the verb that the arguments name; answers with its exit status. */
  run(args: readonly string[]): Promise<number>;
}

/** The verbs, their options and their help. Each verb's code is loaded only when it is used, to keep the start short. */
function programFor(terminal: Terminal): Program {
  let status = 0;
  const corral = new Command("corral")
    .description("Runs untrusted work in containers that see only what was granted.")
    .version(packageVersion(), "--version", "print the version")
    .helpOption("-h, --help", "print this help")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.stdout.write(text),
      writeErr: (text) => terminal.stderr.write(text),
      outputError: (text, write) => write(text.replace(/^error:/, "corral:")),
    })
    .helpCommand("help [command]", "print the help of a command")
    .showHelpAfterError("(--help shows the usage)");
  const verb = (usage: string, description: string): Command =>
    corral.command(usage).description(description).helpOption("-h, --help", "print this help");
  const does = <Args extends unknown[]>(act: (...args: Args) => Promise<number>) => {
    return async (...args: Args): Promise<void> => {
      status = await act(...args);
    };
  };

  verb("run <worker>", "Run a worker, with all the calls that it makes.")
    .addOption(project())
    .option("--input <json>", "JSON for the worker's standard input; @FILE reads a file, - reads standard input")
    .addOption(repeatable("--attach <path[=name]>", "a file that the worker gets below /attachments"))
    .addOption(policy())
    .addOption(approve())
    .option("--tree", "print the tree of calls on standard error at the end, also where that is no terminal")
    .option("--stream", "print what agents say and do on standard error as it comes, also where that is no terminal")
    .option("--record <file>", "write an agent's conversation to a .jsonl file, which `model: script/FILE` plays again")
    .addOption(json("print the result, with all calls, and nothing else"))
    .addHelpText("after", RUN_HELP)
    .action(does(async (worker, options) => (await import("./run/run.ts")).runVerb(worker, options, terminal)));

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
      `\nExit status: 0 where every path would run, 1 where one would not.\n${examples("corral check --project inbox")}`,
    )
    .action(does(async (options) => (await import("./check.ts")).checkVerb(options, terminal)));

  verb("tool [name] [input]", "Use one tool under a worker's sandbox; without a name, list the tools.")
    .option("--worker <name>", "under whose sandbox")
    .addOption(project())
    .addOption(policy())
    .addOption(approve())
    .addOption(json("print the whole answer as JSON"))
    .addHelpText("after", TOOL_HELP)
    .action(
      does(async (name, input, options) =>
        (await import("./session/tool.ts")).toolVerb(name, input, options, terminal),
      ),
    );

  verb("shell <worker>", "Open a shell in a container that a worker would get.")
    .addOption(project())
    .addOption(policy())
    .addHelpText(
      "after",
      `\nExit status: the shell's own.\n${examples("corral shell extract", "echo 'ls /' | corral shell extract")}`,
    )
    .action(does(async (worker, options) => (await import("./session/shell.ts")).shellVerb(worker, options, terminal)));

  verb("mcp", "Serve a worker's tools, files and container to an MCP client.")
    .option("--worker <name>", "whose sandbox the client gets")
    .addOption(project())
    .addOption(policy())
    .addOption(approve())
    .option("--http [port]", "over HTTP on this machine's loopback instead of standard input and output; 0: any port")
    .option("--no-roots", "show all that the worker has, also where the client names roots that hold less")
    .addHelpText("after", MCP_HELP)
    .action(does(async (options) => (await import("./session/mcp.ts")).mcpVerb(options, terminal)));

  verb("map [worker]", "Run a worker over many items, each in a sandbox of its own.")
    .addOption(project())
    .option("--over <glob>", "one item for each file that matches")
    .option("--manifest <file>", "one item for each line of a .jsonl or .csv file; - reads standard input")
    .addOption(new Option("--format <form>", "how the manifest is written").choices(["jsonl", "csv", "paths"]))
    .addOption(repeatable("--within <folder>", "another folder whose files a manifest may name"))
    .option("--fleet <name>", "all of it from fleets/NAME.yaml")
    .addOption(repeatable("--attach <template>", "a file for each item, such as {path}=in.pdf"))
    .addOption(
      repeatable("--allow-read <template>", "what of the worker's files an item may read", "all that the worker may"),
    )
    .addOption(
      repeatable("--allow-write <template>", "what it may write, such as /text/{stem}", "all that the worker may"),
    )
    .option("--input <template>", "JSON for each item's standard input, with fields in its texts")
    .option("--key <template>", "what an item is called in results")
    .option("--concurrency <n>", "how many items run at once, or auto")
    .addOption(new Option("--reuse <how>", "one container for each item, or for many").choices(["fresh", "scrubbed"]))
    .option("--retries <n>", "more attempts at an item whose worker failed (0)")
    .option("--max-failures <n>", "begin nothing more after so many failed items")
    .option(
      "--no-cache",
      "also run items that have succeeded before, on the same worker, policy, image, input and files",
    )
    .addOption(policy())
    .addOption(json("print one result a line as JSON"))
    .addHelpText("after", MAP_HELP)
    .action(does(async (worker, options) => (await import("./fleet/map.ts")).mapVerb(worker, options, terminal)));

  const group = (name: string, description: string): Command =>
    verb(name, description).helpCommand("help [command]", "print the help of a command");
  const fleet = group("fleet", "What became of fleets, and going on with them.");
  const ofFleet = (usage: string, description: string): Command =>
    fleet.command(usage).description(description).helpOption("-h, --help", "print this help").addOption(project());
  ofFleet("ls", "List the fleets of the project, the newest first.")
    .addOption(json())
    .action(does(async (options) => (await import("./fleet/fleet.ts")).listVerb(options, terminal)));
  ofFleet("show <id>", "Show how a fleet stands: items by status and reason, the slowest, the last failures.")
    .addOption(json())
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).showVerb(id, options, terminal)));
  ofFleet("resume <id>", "Go on with a fleet that nobody runs any more.")
    .addOption(json("print one result a line as JSON"))
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).resumeVerb(id, options, terminal)));
  ofFleet("retry <id>", "Run the items of a fleet that failed once more, as a fleet of their own.")
    .option("--failed", "those that failed (there is nothing else yet)")
    .addOption(json("print one result a line as JSON"))
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).retryVerb(id, options, terminal)));
  ofFleet("cancel <id>", "Never run what waits in a fleet; what runs is ended by whoever runs it.").action(
    does(async (id, options) => (await import("./fleet/fleet.ts")).cancelVerb(id, options, terminal)),
  );
  ofFleet("rm [ids...]", "Forget fleets that have ended, with their items and results; what they wrote stays.")
    .option("--before <date>", "all that ended before this time; a date alone is UTC")
    .action(does(async (ids, options) => (await import("./fleet/fleet.ts")).removeVerb(ids, options, terminal)));
  ofFleet("results <id>", "Print what became of each item, in the order of the manifest.")
    .option("--jsonl", "as JSON, one a line (also without saying)")
    .option("--csv", "as CSV with a line of headings")
    .option("--status <status>", "only items with this status")
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).resultsVerb(id, options, terminal)));
  ofFleet("report <id>", "Write one self-contained page: timeline, durations, throughput, failures.")
    .option("--html", "as HTML (there is nothing else yet)")
    .option("--output <file>", "where to; standard output without it")
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).reportVerb(id, options, terminal)));

  verb("ps", "List the containers of all runs that go on, or were left behind.")
    .addOption(json())
    .action(does(async (options) => (await import("./cells.ts")).psVerb(options, terminal)));

  verb("reap", "Remove what was left behind by orchestrators that are dead, and nothing else.")
    .addOption(json())
    .action(does(async (options) => (await import("./cells.ts")).reapVerb(options, terminal)));

  verb("audit", "Show what was asked for, agreed to and done in a project, or whether that record is whole.")
    .addOption(project())
    .option("--verify", "check every record's seal and its place, and show nothing else")
    .option("--run <id>", "only of this run, or of the tree that it is the root of")
    .option("--type <type>", "only records of this type")
    .option("--since <date>", "only from this time on; a date alone is UTC")
    .option("--limit <n>", "at most the newest so many (50; with --json all)")
    .addOption(json("print one record a line as JSON; with --verify the verdict"))
    .addHelpText("after", AUDIT_HELP)
    .action(does(async (options) => (await import("./audit.ts")).auditVerb(options, terminal)));

  const transcripts = group("transcripts", "What agents were told, said and did.");
  const ofTranscripts = (usage: string, description: string): Command =>
    transcripts
      .command(usage)
      .description(description)
      .helpOption("-h, --help", "print this help")
      .addOption(project());
  ofTranscripts("ls", "List the transcripts of the project, the newest first.")
    .addOption(json())
    .action(does(async (options) => (await import("./transcripts.ts")).listVerb(options, terminal)));
  ofTranscripts("show <run>", "Show one, to read.")
    .addOption(json("print it line by line as JSON, as `model: script/FILE` takes it"))
    .action(does(async (run, options) => (await import("./transcripts.ts")).showVerb(run, options, terminal)));

  const changes = group("changes", "What runs wrote and nobody has agreed to yet.").addHelpText("after", CHANGES_HELP);
  const ofChanges = (usage: string, description: string): Command =>
    changes.command(usage).description(description).helpOption("-h, --help", "print this help").addOption(json());
  ofChanges("ls", "List the changesets that wait.")
    .addOption(project())
    .option("--all-projects", "of every project")
    .action(does(async (options) => (await import("./changes.ts")).listVerb(options, terminal)));
  ofChanges("show <id>", "List the changes of one changeset, and what became of them.").action(
    does(async (id, options) => (await import("./changes.ts")).showVerb(id, options, terminal)),
  );
  ofChanges("diff <id>", "Show what would be changed, against what stands there now.").action(
    does(async (id, options) => (await import("./changes.ts")).diffVerb(id, options, terminal)),
  );
  ofChanges("apply [ids...]", "Show what would be changed, ask, and apply it; never overwrite a conflict.")
    .addOption(project())
    .option("--all", "every changeset of the project, in the order in which they were made")
    .addOption(repeatable("--only <path>", "only what is at or below this path of the worker's", "all"))
    .addOption(approve())
    .option("--yes", "agree without being asked; rules of the project that deny still deny")
    .addHelpText("after", "\nExit status: 0 if all was applied, 1 if something was not, 2 wrong usage.")
    .action(does(async (ids, options) => (await import("./changes.ts")).applyVerb(ids, options, terminal)));
  ofChanges("discard [ids...]", "Forget changesets, with all that was written there.")
    .addOption(project())
    .option("--all", "every changeset of the project")
    .action(does(async (ids, options) => (await import("./changes.ts")).discardVerb(ids, options, terminal)));

  const grants = group("grants", "What running workers were granted beyond what they declare.");
  grants
    .command("ls", { isDefault: true })
    .description("List the grants of all runs that go on.")
    .helpOption("-h, --help", "print this help")
    .addOption(json())
    .action(does(async (options) => (await import("./grants.ts")).listVerb(options, terminal)));
  grants
    .command("revoke <id>")
    .description("Take a grant back; the worker is not granted it again while its corral runs.")
    .helpOption("-h, --help", "print this help")
    .addOption(json())
    .addHelpText("after", examples("corral grants revoke 0123456789ab"))
    .action(does(async (id, options) => (await import("./grants.ts")).revokeVerb(id, options, terminal)));

  const images = group("images", "The images that come with Corral.");
  images
    .command("build [names...]")
    .description("Build the images that are missing or out of date: all of them, or these and the base.")
    .helpOption("-h, --help", "print this help")
    .addOption(json())
    .addHelpText("after", examples("corral images build", "corral images build python"))
    .action(does(async (names, options) => (await import("./images.ts")).buildVerb(names, options, terminal)));
  images
    .command("ls")
    .description("List the images, and whether each is there and up to date.")
    .helpOption("-h, --help", "print this help")
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
  return new Option("--project <dir>", "the project's folder").default(".").argParser(notEmpty);
}

/** An unset variable of a script is not this folder. */
function notEmpty(value: string): string {
  if (value === "") throw new InvalidArgumentError("It is empty.");
  return value;
}

function policy(): Option {
  return new Option("--policy <name>", "a policy in place of the project's");
}

function approve(): Option {
  const mode = new Option("--approve <mode>", "who agrees to what must be asked for, in place of the project's mode");
  return mode.choices(APPROVAL_MODE_NAMES);
}

function json(description = "print JSON"): Option {
  return new Option("--json", description);
}

/** `absent`: what it means not to say it. */
function repeatable(flags: string, description: string, absent = "none"): Option {
  return new Option(flags, `${description}; repeatable`).argParser(collect).default([], absent);
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
const MAP_HELP = `
Text in braces is an item's: path, name, stem, ext, dir of a file; the fields of a manifest's line.
Exit status: 0 where every item succeeded, 1 where one did not, 126 where nothing was run, 130 where it was asked to end.
Ctrl-C waits for what runs, twice ends it; corral fleet resume goes on in both cases.
${examples(
  "corral map extract-text --over 'inbox/*.pdf' --attach '{path}=in.pdf' --allow-write '/text/{stem}'",
  `corral map translate --manifest items.jsonl --input '{"lang":"{lang}"}' --json > results.jsonl`,
  "corral map --fleet nightly",
)}`;

const CHANGES_HELP = `
Every verb first finishes what an interrupted corral had begun to apply.
${examples(
  "corral changes ls",
  "corral changes diff 0123456789ab",
  "corral changes apply 0123456789ab --only /notes/today.md",
)}`;
const TOOL_HELP = `
The input is JSON, @FILE, or - for standard input. The answer comes on standard output, a refusal on standard error.

Exit status: 0, or 126 refused or denied, 2 wrong usage; for exec, as of corral run.
${examples(
  `corral tool list_files '{"path": "/"}' --worker triage`,
  `corral tool exec '{"command": "wc -l /inbox/*"}' --worker triage --json`,
)}`;
const MCP_HELP = `
The client starts it and speaks to it on standard input and output. In the client's configuration:

  { "mcpServers": { "notes": { "command": "corral",
      "args": ["mcp", "--project", "/path/of/the/project", "--worker", "notes"] } } }

With --http it prints its URL and a token on standard error; CORRAL_MCP_TOKEN sets the token.
What needs approval is asked through the client where it can ask, else decided by the project's rules.
${examples(
  "claude mcp add notes -- corral mcp --project ~/notes --worker notes",
  "CORRAL_MCP_TOKEN=$(openssl rand -hex 32) corral mcp --worker notes --http 7801",
)}`;
const AUDIT_HELP = `
Exit status: 0; with --verify, 1 where a record was changed, removed, inserted or moved.
${examples(
  "corral audit --project inbox --type approval",
  "corral audit --since 2025-01-31 --json | jq -r .type",
  "corral audit --verify",
)}`;
