import type { Command, CommandOptions } from "commander";
import type { Terminal } from "../terminal/terminal.ts";

type AddVerb = (usage: string, description: string, how?: CommandOptions) => Command;

/** What a file of this folder needs to add its verb, or its group of verbs, to the program. */
export interface Frame {
  readonly terminal: Terminal;
  readonly verb: AddVerb;
  group(name: string, description: string): { readonly command: Command; readonly verb: AddVerb };
  /** An action that runs `act` and keeps its exit status. `act` loads the code of the verb, to keep every start short. */
  does<Args extends unknown[]>(act: (...args: Args) => Promise<number>): (...args: Args) => Promise<void>;
}

/** The frame of this program. `ended` gets the exit status of the verb that ran. */
export function frameOf(program: Command, terminal: Terminal, ended: (status: number) => void): Frame {
  const verbsOf =
    (parent: Command): AddVerb =>
    (usage, description, how = {}) =>
      parent.command(usage, how).description(description).helpOption("-h, --help", "print this help");
  const verb = verbsOf(program);
  return {
    terminal,
    verb,
    group(name, description) {
      const command = verb(name, description).helpCommand("help [command]", "Print the help of a command.");
      return { command, verb: verbsOf(command) };
    },
    does(act) {
      return async (...args) => ended(await act(...args));
    },
  };
}
