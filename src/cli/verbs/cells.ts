import type { Frame } from "./frame.ts";
import { examples, json } from "./options.ts";

export function addCells({ does, terminal, verb }: Frame): void {
  verb("ps")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/cells.ts")).psVerb(options, terminal)));

  verb("reap")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/cells.ts")).reapVerb(options, terminal)));

  verb("du")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/stored.ts")).duVerb(options, terminal)));

  verb("gc")
    .option("--dry-run", "print what would be removed, and remove nothing")
    .option("--older-than <age>", "remove what is older, such as 30d or 12h, and ended fleets too")
    .addOption(json())
    .addHelpText("after", GC_HELP)
    .action(does(async (options) => (await import("../machine/stored.ts")).gcVerb(options, terminal)));
}

const GC_HELP = `
Without --older-than, runs go by the retention of their
project, transcripts and unused mirrors after 30 days, and
fleets stay. Changes that wait and audit trails always stay.

Exit status: 0, or 1 if something could not be read.
${examples("corral gc --dry-run", "corral gc --older-than 90d")}`;
