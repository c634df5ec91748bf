import { type Command, InvalidArgumentError, Option } from "commander";
import { APPROVAL_MODE_NAMES } from "../../sandbox/approval.ts";
import { DRIVER_CHOICES } from "../../sandbox/driver-choice.ts";

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
    "make containers with the Engine, with runc, or with bubblewrap without an Engine (by itself, auto takes runc for fresh items of fleets)",
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
