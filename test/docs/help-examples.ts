import type { Command } from "commander";
import { main, programFor } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";

const terminalTo = (write: (text: string) => void): Terminal =>
  ({ env: {}, cwd: "/", stdout: { write }, stderr: { write } }) as unknown as Terminal;

/** The words of every command that has no commands below it. */
export async function verbs(): Promise<string[][]> {
  const quiet = terminalTo(() => {});
  const names = (await programFor(quiet, [])).command.commands.map((one) => one.name());
  return verbsBelow((await programFor(quiet, names)).command);
}

function verbsBelow(command: Command, path: readonly string[] = []): string[][] {
  const below = command.commands.filter((one) => one.name() !== "help");
  return below.length === 0 ? [[...path]] : below.flatMap((one) => verbsBelow(one, [...path, one.name()]));
}

/** The examples at the end of a help, as a text for sh. */
export async function examplesOf(verb: readonly string[]): Promise<string> {
  let help = "";
  const write = (text: string): void => {
    help += text;
  };
  await main([...verb, "--help"], terminalTo(write));
  return (/^Examples:\n((?: {2}.*\n)+)/m.exec(help)?.[1] ?? "").replace(/^ {2}/gm, "");
}

/** Every example of every help, each on one line. */
export async function helpExamples(): Promise<string[]> {
  const all: string[] = [];
  for (const verb of await verbs()) {
    const lines = (await examplesOf(verb)).replaceAll(/\\\n\s*/g, "").split("\n");
    all.push(...lines.filter((line) => line !== ""));
  }
  return all;
}
