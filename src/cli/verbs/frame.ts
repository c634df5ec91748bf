import { type Command, type CommandOptions, InvalidArgumentError, Option } from "commander";
import { APPROVAL_MODE_NAMES } from "../../sandbox/approval.ts";
import { DRIVER_CHOICES } from "../../sandbox/driver-choice.ts";
import type { Terminal } from "../terminal/terminal.ts";

/** What a file of this folder needs to complete its verbs, or its group of verbs. */
export interface Frame {
  readonly terminal: Terminal;
  /** The verb of the outline with this name, to get its options, its help and its action. */
  verb(name: string): Command;
  /** The same, with verbs of its own, which `verb` adds. */
  group(name: string): {
    readonly command: Command;
    verb(usage: string, description: string, how?: CommandOptions): Command;
  };
  /** An action that runs `act` and keeps its exit status. `act` loads the code of the verb, to keep every start short. */
  does<Args extends unknown[]>(act: (...args: Args) => Promise<number>): (...args: Args) => Promise<void>;
}

/** Of a verb, what the help of the program says. Its options, and what it does, are loaded if the arguments name it. */
export interface OutlinedVerb {
  readonly usage: string;
  readonly description: string;
  readonly isHidden?: true;
  /** What completes it; verbs of one file have the same. */
  load(): Promise<(frame: Frame) => void>;
}

/** Adds all verbs by name and description, and completes those that the arguments name, wherever: most options are of others. */
export async function addVerbs(
  program: Command,
  outline: readonly OutlinedVerb[],
  {
    args,
    terminal,
    ended,
  }: {
    readonly args: readonly string[];
    readonly terminal: Terminal;
    /** Gets the exit status of the verb that ran. */
    ended(status: number): void;
  },
): Promise<void> {
  const verbs = new Map<string, { readonly command: Command; readonly load: OutlinedVerb["load"] }>();
  for (const { usage, description, isHidden = false, load } of outline) {
    const command = program.command(usage, { hidden: isHidden }).description(description);
    verbs.set(command.name(), { command, load });
  }
  const named = await Promise.all(args.flatMap((arg) => verbs.get(arg)?.load() ?? []));
  const verb = (name: string): Command => {
    const found = verbs.get(name);
    if (found === undefined) throw new Error(`the outline has no verb ${name}`);
    return withHelp(found.command);
  };
  const frame: Frame = {
    terminal,
    verb,
    group(name) {
      const command = verb(name).helpCommand("help [command]", "Print the help of a command.");
      return {
        command,
        verb: (usage, description, how = {}) => withHelp(command.command(usage, how).description(description)),
      };
    },
    does(act) {
      return async (...args) => ended(await act(...args));
    },
  };
  for (const complete of new Set(named)) complete(frame);
}

function withHelp(command: Command): Command {
  return command.helpOption("-h, --help", "print this help");
}

export function project(): Option {
  const absent = "the nearest with a corral.yaml, upwards";
  return new Option("-C, --project <dir>", "use the project in this folder").default(".", absent).argParser(notEmpty);
}

/** An unset variable of a script is not this folder. */
function notEmpty(value: string): string {
  if (value === "") throw new InvalidArgumentError("The value is empty.");
  return value;
}

export function policy(): Option {
  return new Option("--policy <name>", "use this policy instead of the project's");
}

/** Of verbs that start containers, and of the program for all of them. */
export function driver(): Option {
  const how = new Option(
    "--driver <name>",
    "make containers with the Engine, with runc, or with bubblewrap without an Engine (by itself, auto takes runc for fresh items of fleets); seatbelt runs a command on macOS without a container",
  );
  return how.choices(DRIVER_CHOICES);
}

/** Of the program: before the verb. */
export function host(): Option {
  const absent = "CORRAL_HOST, else that of corral context";
  return new Option("--host <url>", `do it at this service, or at that of a context; local: here (${absent})`);
}

export function approve(): Option {
  const mode = new Option("--approve <mode>", "decide approvals this way instead of by the project's mode");
  return mode.choices(APPROVAL_MODE_NAMES);
}

export function askElsewhere(): Option {
  return new Option("--ask-elsewhere", "if no user can answer here, keep the question in the inbox (corral approvals)");
}

export function json(description = "print JSON"): Option {
  return new Option("--json", description);
}

export function raw(): Option {
  return new Option("--raw", "on a terminal too, print what the worker prints as it is, with control sequences");
}

export function events(): Option {
  return new Option("--events <file>", "append what happens to this file or FIFO as JSON lines; - is standard output");
}

export function notify(): Option {
  return new Option(
    "--notify <command>",
    "run this command at the end, with the summary as JSON on its standard input",
  );
}

/** Of verbs that run a fleet. */
export function junit(): Option {
  return new Option("--junit <file>", "write the results to this file as XML in the form of JUnit");
}

/** `absent`: what it means not to say it. */
export function repeatable(flags: string, description: string, absent = "none"): Option {
  return new Option(flags, `${description}; repeatable`).argParser(collect).default([], absent);
}

function collect(value: string, before: readonly string[]): readonly string[] {
  return [...before, value];
}

/** A verb whose only argument, which the outline has, is one of these. */
export function oneOf(verb: Command, meaning: string, choices: readonly string[]): Command {
  for (const argument of verb.registeredArguments) {
    argument.description = meaning;
    argument.choices(choices);
  }
  return verb;
}

export function examples(...lines: readonly string[]): string {
  return `\nExamples:\n${lines.map((line) => `  ${line}`).join("\n")}`;
}

/** For the help of verbs that take ids. */
export const IDS = `An id can be shortened to a beginning that no other has,
and \`latest\` is the newest.`;
