import type { Command, CommandOptions } from "commander";
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
