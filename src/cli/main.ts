import { CommanderError } from "commander";
import { programFor } from "./program.ts";
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
