import { confirm } from "@clack/prompts";
import type { Terminal } from "./terminal.ts";

/** Asks before something is removed for good. Where no person is at a terminal, the command itself is the answer. */
export async function agreesTo(
  question: string,
  { stdin, stderr }: Pick<Terminal, "stdin" | "stderr">,
): Promise<boolean> {
  if (stdin.isTTY !== true || stderr.isTTY !== true) return true;
  return (await confirm({ message: question, initialValue: false, input: stdin, output: stderr })) === true;
}
