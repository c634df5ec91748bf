import { Command, CommanderError, type CommandOptions, InvalidArgumentError, Option } from "commander";
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
    .description("Run untrusted work in containers that see only what they were granted.")
    .version(packageVersion(), "--version", "print the version")
    .helpOption("-h, --help", "print this help")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.stdout.write(text),
      writeErr: (text) => terminal.stderr.write(text),
      outputError: (text, write) => write(text.replace(/^error:/, "corral:")),
    })
    .configureHelp({ minWidthToWrap: 20, subcommandTerm: termOf })
    .helpCommand("help [command]", "Print the help of a command.")
    .showHelpAfterError("(--help prints the usage)");
  corral.hook("preAction", async (_, command) => {
    if (command.getOptionValueSource("project") !== "default") return;
    const { nearestProject } = await import("./terminal/nearest-project.ts");
    // Changesets are found by their ids as well, wherever the user is.
    command.setOptionValue("project", await nearestProject(terminal, { orHere: command.parent?.name() === "changes" }));
  });
  const verbOf =
    (parent: Command) =>
    (usage: string, description: string, how: CommandOptions = {}): Command =>
      parent.command(usage, how).description(description).helpOption("-h, --help", "print this help");
  const verb = verbOf(corral);
  const does = <Args extends unknown[]>(act: (...args: Args) => Promise<number>) => {
    return async (...args: Args): Promise<void> => {
      status = await act(...args);
    };
  };

  verb("run <worker>", "Run a worker and all workers that it calls.")
    .addOption(project())
    .option("--input <json>", "give the worker this JSON on its standard input; @FILE reads a file, - standard input")
    .addOption(repeatable("--attach <path[=name]>", "give the worker this file below /attachments"))
    .addOption(policy())
    .addOption(approve())
    .option("--tree", "print the tree of calls on standard error at the end, even without a terminal")
    .option("--stream", "print what agents say and do on standard error at once, even without a terminal")
    .option("--record <file>", "write an agent's conversation to a .jsonl file that `model: script/FILE` replays")
    .option("--continue <run>", "continue the conversation of an agent's earlier run, with the rights that it has now")
    .option(
      "--learn-network",
      "ask about each host that the worker tries to reach, and print the change that allows them",
    )
    .addOption(json("print only the result, with all calls, as JSON"))
    .addHelpText("after", RUN_HELP)
    .action(does(async (worker, options) => (await import("./run/run.ts")).runVerb(worker, options, terminal)));

  verb("explain <worker>", "Show what a worker would get and what removed the rest, without running it.")
    .addOption(project())
    .addOption(policy())
    .addOption(json())
    .addHelpText(
      "after",
      `\nExit status: 0, or 1 if the worker itself would be refused.\n${examples("corral explain triage", "corral explain triage --json | jq .tree.plan.mounts")}`,
    )
    .action(does(async (worker, options) => (await import("./explain.ts")).explainVerb(worker, options, terminal)));

  verb("check", "Find every call path of the project that would be refused. Run nothing.")
    .addOption(project())
    .addOption(json())
    .addHelpText(
      "after",
      `\nExit status: 0 if every path would run, otherwise 1.\n${examples("corral check --project inbox")}`,
    )
    .action(does(async (options) => (await import("./check.ts")).checkVerb(options, terminal)));

  verb(
    "tool [name] [input]",
    "Use one tool in a worker's sandbox. Without a name, list the tools; with --worker, its own, with their inputs.",
  )
    .option("--worker <name>", "use the sandbox of this worker")
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

  verb("shell <worker>", "Open a shell in the container that a worker would get.")
    .addOption(project())
    .addOption(policy())
    .addHelpText(
      "after",
      `\nExit status: the shell's own.\n${examples("corral shell extract", "echo 'ls /' | corral shell extract")}`,
    )
    .action(does(async (worker, options) => (await import("./session/shell.ts")).shellVerb(worker, options, terminal)));

  verb("mcp", "Serve a worker's tools, files and container to an MCP client.")
    .option("--worker <name>", "give the client the sandbox of this worker")
    .addOption(project())
    .addOption(policy())
    .addOption(approve())
    .option(
      "--http [port]",
      "serve over HTTP on this machine's loopback, not standard input and output; 0 takes any port",
    )
    .option("--no-roots", "show all of the worker's files, even if the client's roots contain less")
    .addHelpText("after", MCP_HELP)
    .action(does(async (options) => (await import("./session/mcp.ts")).mcpVerb(options, terminal)));

  verb("map [worker]", "Run a worker over many items, each in its own sandbox.")
    .addOption(project())
    .option("--over <glob>", "make one item for each file that matches")
    .option(
      "--manifest <file>",
      "make one item for each line of a .jsonl or .csv file, or of paths with --format paths; - reads standard input",
    )
    .addOption(new Option("--format <form>", "read the manifest in this format").choices(["jsonl", "csv", "paths"]))
    .addOption(repeatable("--within <folder>", "let the manifest name files of this folder too"))
    .option("--fleet <name>", "read all of this from fleets/NAME.yaml")
    .addOption(repeatable("--attach <template>", "give each item this file, such as {path}=in.pdf"))
    .addOption(
      repeatable(
        "--allow-read <template>",
        "let each item read only this of the worker's files, and write nothing without --allow-write",
        "all of them",
      ),
    )
    .addOption(
      repeatable(
        "--allow-write <template>",
        "let each item write only this, such as /text/{stem}",
        "all that the worker may write",
      ),
    )
    .option("--input <template>", "give each item this JSON on standard input; fields in its texts are filled in")
    .option("--key <template>", "name each item in the results")
    .option("--concurrency <n>", "run so many items at once, or auto")
    .addOption(
      new Option("--reuse <how>", "use one container for each item, or one for many").choices(["fresh", "scrubbed"]),
    )
    .option("--retries <n>", "retry an item whose worker failed so many times (0)")
    .option("--max-failures <n>", "start no more items after so many have failed")
    .option(
      "--no-cache",
      "run every item, even if it has succeeded before with the same worker, policy, image, input and files",
    )
    .addOption(policy())
    .addOption(json("print one result per line as JSON"))
    .addHelpText("after", MAP_HELP)
    .action(does(async (worker, options) => (await import("./fleet/map.ts")).mapVerb(worker, options, terminal)));

  const group = (name: string, description: string): Command =>
    verb(name, description).helpCommand("help [command]", "Print the help of a command.");
  const fleet = verbOf(group("fleet", "Inspect, resume and retry fleets."));
  const ofFleet = (usage: string, description: string): Command => fleet(usage, description).addOption(project());
  ofFleet("ls", "List the fleets of the project, the newest first.")
    .addOption(json())
    .action(does(async (options) => (await import("./fleet/fleet.ts")).listVerb(options, terminal)));
  ofFleet("show <id>", "Show a fleet: items by status and error, the slowest, the last failures.")
    .addOption(json())
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).showVerb(id, options, terminal)));
  ofFleet("resume <id>", "Resume a fleet that no process runs any more.")
    .addOption(json("print one result per line as JSON"))
    .addHelpText("after", LIKE_MAP)
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).resumeVerb(id, options, terminal)));
  ofFleet("retry <id>", "Run the failed items of a fleet again, as a new fleet.")
    .option("--failed", "retry the failed items (the default and only choice)")
    .addOption(json("print one result per line as JSON"))
    .addHelpText("after", LIKE_MAP)
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).retryVerb(id, options, terminal)));
  ofFleet("cancel <id>", "Cancel the waiting items of a fleet; the process that runs it ends the others.").action(
    does(async (id, options) => (await import("./fleet/fleet.ts")).cancelVerb(id, options, terminal)),
  );
  ofFleet("rm [ids...]", "Remove fleets that have ended, with their results. Files that they wrote stay.")
    .option("--before <date>", "remove all that ended before this time; a date alone is UTC")
    .addHelpText("after", "\nExit status: 0, or 2 if one does not exist or has not ended.\nThen none is removed.")
    .action(does(async (ids, options) => (await import("./fleet/fleet.ts")).removeVerb(ids, options, terminal)));
  ofFleet("results <id>", "Print the result of each item, in the order of the manifest.")
    .option("--jsonl", "print one result per line as JSON (the default)")
    .addOption(json("the same as --jsonl"))
    .option("--csv", "print CSV with a line of headings")
    .option("--status <status>", "print only items with this status")
    .addHelpText("after", "\nExit status: 0, or 2 if there is no such fleet or status.")
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).resultsVerb(id, options, terminal)));
  ofFleet("report <id>", "Write a self-contained HTML page: timeline, durations, throughput, failures.")
    .option("--html", "write HTML (the default and only choice)")
    .option("--output <file>", "write it to this file instead of standard output")
    .action(does(async (id, options) => (await import("./fleet/fleet.ts")).reportVerb(id, options, terminal)));

  verb("ps", "List the containers of running workers, and those left behind.")
    .addOption(json())
    .action(does(async (options) => (await import("./cells.ts")).psVerb(options, terminal)));

  verb("reap", "Remove what dead corral processes left behind, and nothing else.")
    .addOption(json())
    .action(does(async (options) => (await import("./cells.ts")).reapVerb(options, terminal)));

  verb("audit", "Show the audit trail of a project: what was asked, approved and done.")
    .addOption(project())
    .option("--verify", "verify every record's seal and place, and print the verdict")
    .option("--run <id>", "show only this run, or the tree of calls below it")
    .option("--type <type>", "show only records of this type")
    .option("--since <date>", "show only records since this time; a date alone is UTC")
    .option("--limit <n>", "show at most so many, the newest (50; with --json all)")
    .addOption(json("print one record per line as JSON; with --verify the verdict"))
    .addHelpText("after", AUDIT_HELP)
    .action(does(async (options) => (await import("./audit.ts")).auditVerb(options, terminal)));

  const transcripts = verbOf(group("transcripts", "Read the conversations of agents."));
  transcripts("ls", "List the transcripts of the project, the newest first.")
    .addOption(project())
    .addOption(json())
    .action(does(async (options) => (await import("./transcripts.ts")).listVerb(options, terminal)));
  transcripts("show <run>", "Show one transcript.")
    .addOption(project())
    .addOption(json("print lines of JSON, as `model: script/FILE` reads them"))
    .action(does(async (run, options) => (await import("./transcripts.ts")).showVerb(run, options, terminal)));

  const changes = group("changes", "Review and apply what runs wrote and no person approved yet.").addHelpText(
    "after",
    CHANGES_HELP,
  );
  const ofChanges = (usage: string, description: string): Command =>
    verbOf(changes)(usage, description).addOption(json());
  ofChanges("ls", "List the changesets that wait for approval.")
    .addOption(project())
    .option("--all-projects", "list those of every project")
    .action(does(async (options) => (await import("./changes.ts")).listVerb(options, terminal)));
  ofChanges("show <id>", "List the changes of one changeset and their state.").action(
    does(async (id, options) => (await import("./changes.ts")).showVerb(id, options, terminal)),
  );
  ofChanges("diff <id>", "Compare one changeset with the files as they are now.").action(
    does(async (id, options) => (await import("./changes.ts")).diffVerb(id, options, terminal)),
  );
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
    .action(does(async (ids, options) => (await import("./changes.ts")).applyVerb(ids, options, terminal)));
  ofChanges("discard [ids...]", "Remove changesets and all that was written there.")
    .addOption(project())
    .option("--all", "discard every changeset of the project")
    .action(does(async (ids, options) => (await import("./changes.ts")).discardVerb(ids, options, terminal)));

  const grants = verbOf(group("grants", "List and revoke what running workers were granted beyond their files."));
  grants("ls", "List the grants of all running workers.", { isDefault: true })
    .addOption(json())
    .action(does(async (options) => (await import("./grants.ts")).listVerb(options, terminal)));
  grants("revoke <id>", "Revoke a grant. The worker does not get it again while its corral runs.")
    .addOption(json())
    .addHelpText("after", examples("corral grants revoke 0123456789ab"))
    .action(does(async (id, options) => (await import("./grants.ts")).revokeVerb(id, options, terminal)));

  const images = verbOf(group("images", "List and build the images that come with Corral."));
  images("build [names...]", "Build the images that are missing or out of date: all of them, or these and the base.")
    .addOption(json())
    .addHelpText("after", examples("corral images build", "corral images build python"))
    .action(does(async (names, options) => (await import("./images.ts")).buildVerb(names, options, terminal)));
  images("ls", "List the images, and whether each exists and is up to date.")
    .addOption(json())
    .action(does(async (options) => (await import("./images.ts")).listVerb(options, terminal)));

  verb("doctor", "Check whether this machine can run workers, and what is missing.")
    .addOption(json())
    .addHelpText("after", "\nExit status: 0 if nothing is missing, otherwise 1.")
    .action(does(async (options) => (await import("./doctor.ts")).doctorVerb(options, terminal)));

  return {
    async run(args) {
      await corral.parseAsync([...args], { from: "user" });
      return status;
    },
  };
}

/** Without `[options]`, which every command has: the description gets the room. */
function termOf(command: Command): string {
  const args = command.registeredArguments.map((argument) => {
    const name = argument.name() + (argument.variadic ? "..." : "");
    return argument.required ? `<${name}>` : `[${name}]`;
  });
  return [command.name(), ...args].join(" ");
}

function project(): Option {
  const absent = "the nearest with a corral.yaml, upwards";
  return new Option("--project <dir>", "use the project in this folder").default(".", absent).argParser(notEmpty);
}

/** An unset variable of a script is not this folder. */
function notEmpty(value: string): string {
  if (value === "") throw new InvalidArgumentError("The value is empty.");
  return value;
}

function policy(): Option {
  return new Option("--policy <name>", "use this policy instead of the project's");
}

function approve(): Option {
  const mode = new Option("--approve <mode>", "decide approvals this way instead of by the project's mode");
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
The worker's standard output is on standard output,
everything else on standard error.

Exit status: the worker's own, or
  2    wrong usage
  124  timed out
  125  Engine trouble, or the run was lost
  126  refused or denied
  130  cancelled
  137  killed for memory
  153  over a limit of output or disk
  128+n  ended by signal n
${examples(
  "corral run triage --project inbox",
  "corral run extract --attach ~/paper.pdf=in.pdf \\",
  `    --input '{"pages": 3}'`,
  "corral run extract --attach /data/paper.pdf \\",
  "    --approve auto_deny --json",
)}`;
const MAP_HELP = `
Text in braces is a field of the item: path, relative, name,
stem, ext and dir of a file, or the fields of a manifest's
line. A manifest on standard input is .jsonl without --format.

Ctrl-C waits for running items; Ctrl-C twice stops them.
In both cases \`corral fleet resume\` continues the fleet.

Exit status:
  0    every item succeeded
  1    an item did not succeed
  2    wrong usage, or no file matches the pattern
  126  nothing was run
  130  interrupted
${examples(
  "corral map extract-text --over 'inbox/*.pdf' \\",
  "    --attach '{path}=in.pdf' \\",
  "    --allow-read '/text/{stem}' --allow-write '/text/{stem}'",
  "corral map translate --manifest items.jsonl \\",
  `    --input '{"lang":"{lang}"}' --json > results.jsonl`,
  "corral map --fleet nightly",
)}`;

const LIKE_MAP = `
Exit status: that of corral map. If nothing was run, because
the fleet has no such items or another process runs it: 126.`;

const CHANGES_HELP = `
Every command first finishes what an interrupted corral had
begun to apply.
${examples(
  "corral changes ls",
  "corral changes diff 0123456789ab",
  "corral changes apply 0123456789ab --only /notes/today.md",
)}`;
const TOOL_HELP = `
The input is JSON, @FILE, or - for standard input. The
answer is on standard output, a refusal on standard error.

Exit status: 0, or 126 refused or denied, 2 wrong usage. For
exec, the same as corral run.
${examples(
  `corral tool list_files '{"path": "/"}' --worker triage`,
  `corral tool exec '{"command": "wc -l /inbox/*"}' \\`,
  "    --worker triage --json",
)}`;
const MCP_HELP = `
The client starts this command and speaks to it on standard
input and output. In the client's configuration:

  { "mcpServers": { "notes": { "command": "corral",
      "args": ["mcp", "--project", "/path/of/the/project",
               "--worker", "notes"] } } }

With --http it prints its URL and a token on standard error.
CORRAL_MCP_TOKEN sets the token.

The project's rules decide first. In the mode interactive,
the client is asked if it can show forms. If it cannot, the
user at the terminal of --http is asked, or it is denied.
${examples(
  "claude mcp add notes -- \\",
  "    corral mcp --project ~/notes --worker notes",
  "CORRAL_MCP_TOKEN=$(openssl rand -hex 32) \\",
  "    corral mcp --worker notes --http 7801",
)}`;
const AUDIT_HELP = `
Exit status: 0. With --verify: 1 if a record was changed,
removed, inserted or moved.
${examples(
  "corral audit --project inbox --type approval",
  "corral audit --since 2025-01-31 --json | jq -r .type",
  "corral audit --verify",
)}`;
