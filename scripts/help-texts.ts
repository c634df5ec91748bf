import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { main, programFor } from "../src/cli/program.ts";
import type { Terminal } from "../src/cli/terminal/terminal.ts";

/** Writes what the parser prints as the help of the program and of each command where there is no terminal: most callers are programs. */
export async function writeHelpTexts(dir: string): Promise<void> {
  let text = "";
  const stream = { write: (piece: string) => (text += piece) };
  const terminal = { env: {}, cwd: "/", stdout: stream, stderr: stream } as unknown as Terminal;
  const { command } = await programFor(terminal, []);
  mkdirSync(dir);
  for (const name of ["", ...command.commands.map((verb) => verb.name())]) {
    text = "";
    await main([...(name === "" ? [] : [name]), "--help"], terminal);
    writeFileSync(join(dir, `${name || "corral"}.txt`), text);
  }
}
