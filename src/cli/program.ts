import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { Command, CommanderError } from "commander";
import { packageVersion } from "../declarations/place/package-root.ts";
import { hasCode } from "../platform/errno.ts";
import { configFile } from "./terminal/arguments.ts";
import type { Failure } from "./terminal/failure.ts";
import { EXIT, type ProcessTerminal, printJson, say, type Terminal, terminalOf } from "./terminal/terminal.ts";
import { addVerbs, driver, host, type OutlinedVerb, project } from "./verbs/frame.ts";
import { isWithoutProject, nearestProject } from "./verbs/without-project.ts";

/** What these show is there for a folder without a project too: commands were run in it, and Corral has images and policies of its own. */
const KEPT_ANYWHERE: ReadonlySet<string> = new Set(["changes", "audit", "images", "runs", "verify"]);

/** Runs the command line in this process, and ends it. */
export async function start(args: readonly string[]): Promise<never> {
  const terminal = terminalIn(process);
  const status = await main(args, terminal);

  // Whatever a library still holds open must not keep a finished command alive. What was printed is read first.
  const written = (stream: NodeJS.WriteStream) => new Promise((resolve) => stream.write("", resolve));
  await Promise.all([written(process.stdout), written(process.stderr)]);
  process.exit(terminal.fault === null ? status : EXIT.engineTrouble);
}

/** Without a working directory nothing that the command line names has a place. */
function terminalIn(process: NodeJS.Process): ProcessTerminal {
  try {
    return terminalOf(process);
  } catch (error) {
    if (!hasCode(error, "ENOENT")) throw error;
    process.stderr.write("corral: the working directory was removed; change to one that is there\n");
    return process.exit(EXIT.wrongUsage);
  }
}

/** The whole command line: arguments in, exit status out. Every error ends here. */
export async function main(args: readonly string[], terminal: Terminal): Promise<number> {
  try {
    return await (await programFor(terminal, args)).run();
  } catch (error) {
    // Commander has already said what is wrong, or printed the help or the version that was asked for.
    if (error instanceof CommanderError && error.exitCode === 0) return 0;
    const failure = error instanceof CommanderError ? wrongUsage(error) : await failureFor(error, terminal);
    if (!(error instanceof CommanderError)) say(terminal, failure.text);
    if (wantsJson(args)) printJson(terminal, { error: failure.error });
    return failure.status;
  }
}

/** What words an error knows all kinds of errors, most of which no command loads. */
async function failureFor(error: unknown, { env }: Terminal): Promise<Failure> {
  return (await import("./terminal/failure.ts")).failureOf(error, env);
}

function wrongUsage({ code, message }: CommanderError): Failure {
  const text = code === "commander.help" ? "a command is missing" : message.replace(/^error: /, "");
  return { text, status: EXIT.wrongUsage, error: { code: "WRONG_USAGE", message: text } };
}

/** A shell makes many words of a pattern that is not quoted. */
function helpHint(args: readonly string[]): string {
  const quoting = args.includes("--over") ? ", and a pattern is quoted: --over 'inbox/*.pdf'" : "";
  return `(--help prints the usage${quoting})`;
}

/** What follows `--` belongs to the worker. */
function wantsJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return (end < 0 ? args : args.slice(0, end)).includes("--json");
}

interface Program {
  readonly command: Command;
  /** Runs the verb that the arguments name; answers with its exit status. */
  run(): Promise<number>;
}

/** The program with all its verbs. Those that the arguments name have their options. */
export async function programFor(of: Terminal, args: readonly string[]): Promise<Program> {
  let status = 0;
  // `--driver` is the variable for this one command.
  const env = { ...of.env };
  const terminal: Terminal = Object.create(of, { env: { value: env }, service: { value: undefined, writable: true } });
  const corral = new Command("corral")
    .description("Run untrusted work in containers that see only what they were granted.")
    .version(packageVersion(), "-V, --version", "print the version")
    .addOption(project())
    .addOption(driver())
    .addOption(host())
    .enablePositionalOptions()
    .helpOption("-h, --help", "print this help")
    .exitOverride()
    .configureOutput({
      writeOut: (text) => terminal.stdout.write(text),
      writeErr: (text) => terminal.stderr.write(text),
      outputError: (text, write) => write(text.replace(/^error:/, "corral:")),
    })
    .configureHelp({ minWidthToWrap: 20, subcommandTerm: termOf })
    .helpCommand("help [command]", "Print the help of a command.")
    .showHelpAfterError(helpHint(args));
  corral.hook("preAction", async (_, command) => {
    stopWorkflowCommands(terminal);
    const asked = command.getOptionValue("driver") ?? corral.getOptionValue("driver");
    if (asked !== undefined) env.CORRAL_DRIVER = asked;
    const said = corral.getOptionValue("host");
    if (said !== undefined || env.CORRAL_HOST || existsSync(configFile(env))) {
      const { serviceFor } = await import("./host/at-service.ts");
      const service = await serviceFor(said, { corral, command }, terminal);
      if (service !== null) return void Object.assign(terminal, { service });
    }
    if (isWithoutProject(command) || command.getOptionValueSource("project") !== "default") return;
    if (corral.getOptionValueSource("project") !== "default")
      return void command.setOptionValue("project", corral.getOptionValue("project"));
    // `work --grants` prints, and reads no project.
    if (command.getOptionValue("grants") !== undefined) return;
    const orHere = KEPT_ANYWHERE.has(command.parent?.name() ?? "") || KEPT_ANYWHERE.has(command.name());
    command.setOptionValue("project", await nearestProject(terminal, { orHere }));
  });
  await addVerbs(corral, OUTLINE, {
    args,
    terminal,
    ended(ended) {
      status = ended;
    },
  });
  return {
    command: corral,
    async run() {
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

/** All verbs, in the order of the help. */
const OUTLINE: readonly OutlinedVerb[] = [
  {
    usage: "init [kind] [dir]",
    description: "Write a project that runs at once: documents, batch, agent or ci.",
    load: async () => (await import("./verbs/project.ts")).addInit,
  },
  {
    usage: "run [worker] [words...]",
    description: "Run a worker and all workers that it calls; or, without a project, the command after `--`.",
    load: async () => (await import("./verbs/run.ts")).addRun,
  },
  {
    usage: "convert [source...]",
    description: "Turn strangers' files into text, PDF, pictures or facts, each in a container of its own.",
    load: async () => (await import("./verbs/run.ts")).addConvert,
  },
  {
    usage: "ci",
    description: "Run the jobs of ci.yaml on a stranger's branch.",
    load: async () => (await import("./verbs/run.ts")).addCi,
  },
  {
    usage: "explain [worker] [words...]",
    description:
      "Show what a worker, or a command without a project, would get and what removed the rest, without running it.",
    load: async () => (await import("./verbs/project.ts")).addExplain,
  },
  {
    usage: "check",
    description: "Find every call path of the project that would be refused. Run nothing.",
    load: async () => (await import("./verbs/project.ts")).addCheck,
  },
  {
    usage: "workers",
    description: "List the workers of a project.",
    load: async () => (await import("./verbs/project.ts")).addWorkers,
  },
  {
    usage: "tool [name] [input]",
    description:
      "Use one tool in a worker's sandbox. Without a name, list the tools; with --worker, its own, with their inputs.",
    load: async () => (await import("./verbs/session.ts")).addTool,
  },
  {
    usage: "shell [worker]",
    description: "Open a shell in the container that a worker would get, or in one that the options describe.",
    load: async () => (await import("./verbs/session.ts")).addShell,
  },
  {
    usage: "session",
    description: "Start sessions that stay, and use them: commands, terminals and files.",
    load: async () => (await import("./verbs/live-session.ts")).addSession,
  },
  {
    usage: "mcp",
    description: "Serve a worker's tools, files and container to an MCP client.",
    load: async () => (await import("./verbs/session.ts")).addMcp,
  },
  {
    usage: "serve",
    description: "Serve projects over HTTP: an API to run, watch and decide.",
    load: async () => (await import("./verbs/service.ts")).addServe,
  },
  {
    usage: "map [worker]",
    description: "Run a worker over many items, each in its own sandbox.",
    load: async () => (await import("./verbs/fleet.ts")).addMap,
  },
  {
    usage: "fleet",
    description: "Inspect, resume and retry fleets.",
    load: async () => (await import("./verbs/fleet.ts")).addFleet,
  },
  {
    usage: "work",
    description: "Run items of fleets that other machines own, until Ctrl-C.",
    load: async () => (await import("./verbs/fleet.ts")).addWork,
  },
  {
    usage: "runs",
    description: "List, read and stop runs, and show what they printed.",
    load: async () => (await import("./verbs/history.ts")).addRuns,
  },
  {
    usage: "ps",
    description: "List the containers of running workers, and those left behind.",
    load: async () => (await import("./verbs/machine.ts")).addCells,
  },
  {
    usage: "reap",
    description: "Remove what dead corral processes left behind, and nothing else.",
    load: async () => (await import("./verbs/machine.ts")).addCells,
  },
  {
    usage: "du",
    description: "Show how much Corral keeps on this machine, by kind.",
    load: async () => (await import("./verbs/machine.ts")).addCells,
  },
  {
    usage: "gc",
    description: "Remove old data that Corral keeps, and what dead processes left.",
    load: async () => (await import("./verbs/machine.ts")).addCells,
  },
  {
    usage: "audit",
    description: "Show the audit trail of a project: what was asked, approved and done.",
    load: async () => (await import("./verbs/history.ts")).addAudit,
  },
  {
    usage: "transcripts",
    description: "Read the conversations of agents.",
    load: async () => (await import("./verbs/history.ts")).addTranscripts,
  },
  {
    usage: "changes",
    description: "Review and apply changes of runs that no person approved yet.",
    load: async () => (await import("./verbs/consent.ts")).addChanges,
  },
  {
    usage: "grants",
    description: "List and revoke what running workers were granted beyond their files.",
    load: async () => (await import("./verbs/consent.ts")).addGrants,
  },
  {
    usage: "approvals",
    description: "Answer questions of running workers, wherever they were asked, and see who decided.",
    load: async () => (await import("./verbs/consent.ts")).addApprovals,
  },
  {
    usage: "images",
    description: "List, build, pull and remove images, those of Corral and those of a project.",
    load: async () => (await import("./verbs/machine.ts")).addImages,
  },
  {
    usage: "doctor",
    description: "Check whether this machine can run workers, and what is missing.",
    load: async () => (await import("./verbs/machine.ts")).addDoctor,
  },
  {
    usage: "verify",
    description: "Attack containers of this machine from within, and report what held.",
    load: async () => (await import("./verbs/machine.ts")).addVerify,
  },
  {
    usage: "login <url>",
    description: "Use Corral on another machine: keep the address and the token of its service.",
    load: async () => (await import("./verbs/service.ts")).addLogin,
  },
  {
    usage: "context",
    description: "List and choose the services that you logged in to.",
    load: async () => (await import("./verbs/service.ts")).addContext,
  },
  {
    usage: "up",
    description: "Start the service for this project in a container of this machine's Docker, and use it.",
    load: async () => (await import("./verbs/service.ts")).addUp,
  },
  {
    usage: "down [name]",
    description: "Remove the container and the context that corral up made.",
    load: async () => (await import("./verbs/service.ts")).addDown,
  },
  {
    usage: "schema [kind]",
    description: "Print the format of a file as JSON Schema, for editors. Without a kind, list the kinds.",
    load: async () => (await import("./verbs/project.ts")).addSchema,
  },
  {
    usage: "completion <shell>",
    description: "Print the script with which a shell completes corral.",
    load: async () => (await import("./verbs/project.ts")).addCompletion,
  },
  {
    usage: "complete <shell> [words...]",
    description: "Print how a command line continues.",
    isHidden: true,
    load: async () => (await import("./verbs/project.ts")).addCompletion,
  },
];

/**
 * The runner of GitHub Actions reads commands from everything that a step prints, such as `::error::` and `::add-mask::`. A worker
 * chooses what it prints. So the runner is asked to read none for the rest of the step, before anything else is printed. It reads standard
 * error before standard output, so it would read commands that a worker printed last: only annotations (`github/step-summary.ts`) have it read
 * some of Corral's.
 */
function stopWorkflowCommands(terminal: Pick<Terminal, "env" | "stderr">): void {
  if (terminal.env.GITHUB_ACTIONS !== "true") return;
  const commandsToken = randomBytes(16).toString("hex");
  terminal.stderr.write(`::stop-commands::${commandsToken}\n`);
  Object.assign(terminal, { commandsToken });
}
