import type { Frame } from "./frame.ts";
import { examples, json } from "./options.ts";

export function addInit({ does, terminal, verb }: Frame): void {
  verb("init")
    .addOption(json("print what was written as JSON"))
    .addHelpText("after", INIT_HELP)
    .action(
      does(async (kind, dir, options) => {
        return await (await import("../project/init.ts")).initVerb(kind, dir ?? ".", options, terminal);
      }),
    );
}

const INIT_HELP = `
documents  turns strangers' PDF files into text
batch      runs one worker over many items
agent      lets a model read files and write notes; a script
           plays the model, so it needs no key
ci         tests a stranger's branch without a network

Without a kind, you are asked at a terminal.

Exit status: 0, or 2 if one of the files already exists;
then nothing is written.
${examples("corral init documents", "corral init agent ~/notes")}`;
