import { textBeside } from "../../platform/text-beside.ts";
import type { Terminal } from "../terminal/terminal.ts";
import type { CompletedShell } from "./complete.ts";

/** `corral completion`: the script for one shell. */
export async function completionVerb(shell: CompletedShell, { stdout }: Pick<Terminal, "stdout">): Promise<number> {
  stdout.write(SCRIPTS[shell]);
  return 0;
}

/*
 * Each script asks `corral complete SHELL -- WORDS`, with the word at the cursor as the last. The first line of the answer says
 * `words`, `files` or `folders`; each further line is a word, a tab and what it means. No script evaluates what it reads.
 */

const SCRIPTS: Readonly<Record<CompletedShell, string>> = {
  bash: textBeside(import.meta.url, "completion.bash"),
  zsh: textBeside(import.meta.url, "completion.zsh"),
  fish: textBeside(import.meta.url, "completion.fish"),
};
