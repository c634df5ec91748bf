import { CommanderError } from "commander";
import { EXIT } from "./exit-status.ts";
import { failureOf } from "./failure.ts";
import { programFor } from "./program.ts";
import { say, type Terminal } from "./terminal.ts";

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
