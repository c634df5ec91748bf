import { main } from "./program.ts";
import { EXIT } from "./terminal/exit-status.ts";
import { terminalOf } from "./terminal/terminal.ts";

/** Runs the command line in this process, and ends it. */
export async function start(args: readonly string[]): Promise<never> {
  const terminal = terminalOf(process);
  const status = await main(args, terminal);

  // Whatever a library still holds open must not keep a finished command alive. What was printed is read first.
  const written = (stream: NodeJS.WriteStream) => new Promise((resolve) => stream.write("", resolve));
  await Promise.all([written(process.stdout), written(process.stderr)]);
  process.exit(terminal.fault === null ? status : EXIT.engineTrouble);
}
