import { join } from "node:path";
import type { Command } from "commander";
import { readLine } from "../../src/approval/shell-rules/reading.ts";
import { programFor } from "../../src/cli/program.ts";
import type { Terminal } from "../../src/cli/terminal/terminal.ts";

/** What stands for a word that only a shell knows, such as `$HEAD`. */
const ANY_WORD = "word";

/** Every command line of Corral in a text for `sh`, without its first words `corral` or `npx corral`. */
export function corralLinesOf(script: string): string[][] {
  return readLine(script).parts.flatMap((part) => {
    if (part.kind !== "command") return [];
    const words = part.words.map((word) => word ?? ANY_WORD);
    // Behind `--`, a command that another program gets.
    const own =
      words[0] === "claude" ? words.slice(words.indexOf("--") + 1) : words[0] === "npx" ? words.slice(1) : words;
    return own[0] === "corral" ? [own.slice(1)] : [];
  });
}

/** Reads a command line with the real program, down to its options and the number of its arguments, and runs nothing. Null if it is right. */
export async function faultOf(words: readonly string[]): Promise<string | null> {
  let printed = "";
  const stream = {
    write(text: string) {
      printed += text;
    },
  };
  // A folder with a project, because the program looks for one before it runs a verb.
  const cwd = join(import.meta.dirname, "../../examples/inbox");
  const terminal = { env: {}, cwd, stdout: stream, stderr: stream } as unknown as Terminal;
  const { command } = await programFor(terminal, words);
  let reached = false;
  const withoutActions = (one: Command): void => {
    if (one.commands.length === 0 || hasAction(one))
      one.action(() => {
        reached = true;
      });
    one.commands.forEach(withoutActions);
  };
  withoutActions(command);
  try {
    await command.parseAsync([...words], { from: "user" });
  } catch (error) {
    return printed.trim() || String(error);
  }
  return reached ? null : "it names no command";
}

/** Of a command with verbs of its own that also does something without one; commander does not show it. */
function hasAction(command: Command): boolean {
  return (command as unknown as { _actionHandler: unknown })._actionHandler !== null;
}
