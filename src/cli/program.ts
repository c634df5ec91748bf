import { Command, CommanderError } from "commander";
import { packageVersion } from "../operations/package-version.ts";
import { stopWorkflowCommands } from "./github/workflow-commands.ts";
import { EXIT } from "./terminal/exit-status.ts";
import type { Failure } from "./terminal/failure.ts";
import { printJson, say, type Terminal } from "./terminal/terminal.ts";
import { addAudit } from "./verbs/audit.ts";
import { addCells } from "./verbs/cells.ts";
import { addChanges } from "./verbs/changes.ts";
import { addCheck } from "./verbs/check.ts";
import { addCompletion } from "./verbs/completion.ts";
import { addDoctor } from "./verbs/doctor.ts";
import { addExplain } from "./verbs/explain.ts";
import { addFleet } from "./verbs/fleet.ts";
import { type Frame, frameOf } from "./verbs/frame.ts";
import { addGrants } from "./verbs/grants.ts";
import { addImages } from "./verbs/images.ts";
import { addInit } from "./verbs/init.ts";
import { addMap } from "./verbs/map.ts";
import { addMcp } from "./verbs/mcp.ts";
import { project } from "./verbs/options.ts";
import { addRun } from "./verbs/run.ts";
import { addRuns } from "./verbs/runs.ts";
import { addSchema } from "./verbs/schema.ts";
import { addShell } from "./verbs/shell.ts";
import { addTool } from "./verbs/tool.ts";
import { addTranscripts } from "./verbs/transcripts.ts";
import { isWithoutProject } from "./verbs/without-project.ts";
import { addWorkers } from "./verbs/workers.ts";

/** All verbs, in the order of the help. Each file has the options and the help; what the verb does is loaded when it runs. */
const VERBS: readonly ((frame: Frame) => void)[] = [
  addInit,
  addRun,
  addExplain,
  addCheck,
  addWorkers,
  addTool,
  addShell,
  addMcp,
  addMap,
  addFleet,
  addRuns,
  addCells,
  addAudit,
  addTranscripts,
  addChanges,
  addGrants,
  addImages,
  addDoctor,
  addSchema,
  addCompletion,
];

/** What these show is there for a folder without a project too: commands were run in it, and Corral has images of its own. */
const KEPT_ANYWHERE: ReadonlySet<string> = new Set(["changes", "audit", "images", "runs"]);

/** The whole command line: arguments in, exit status out. Every error ends here. */
export async function main(args: readonly string[], terminal: Terminal): Promise<number> {
  const program = programFor(terminal);
  try {
    return await program.run(args);
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

/** What follows `--` belongs to the worker. */
function wantsJson(args: readonly string[]): boolean {
  const end = args.indexOf("--");
  return (end < 0 ? args : args.slice(0, end)).includes("--json");
}

interface Program {
  /** All verbs with their options, for what reads command lines without running them. */
  readonly command: Command;
  /** Runs the verb that the arguments name; answers with its exit status. */
  run(args: readonly string[]): Promise<number>;
}

/** The program with all its verbs. */
export function programFor(terminal: Terminal): Program {
  let status = 0;
  const corral = new Command("corral")
    .description("Run untrusted work in containers that see only what they were granted.")
    .version(packageVersion(), "-V, --version", "print the version")
    .addOption(project())
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
    .showHelpAfterError("(--help prints the usage)");
  corral.hook("preAction", async (_, command) => {
    stopWorkflowCommands(terminal);
    if (isWithoutProject(command) || command.getOptionValueSource("project") !== "default") return;
    if (corral.getOptionValueSource("project") !== "default")
      return void command.setOptionValue("project", corral.getOptionValue("project"));
    const { nearestProject } = await import("./terminal/nearest-project.ts");
    const orHere = KEPT_ANYWHERE.has(command.parent?.name() ?? "") || KEPT_ANYWHERE.has(command.name());
    command.setOptionValue("project", await nearestProject(terminal, { orHere }));
  });
  const frame = frameOf(corral, terminal, (ended) => {
    status = ended;
  });
  for (const add of VERBS) add(frame);

  return {
    command: corral,
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
