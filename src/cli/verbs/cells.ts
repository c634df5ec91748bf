import type { Frame } from "./frame.ts";
import { json } from "./options.ts";

export function addCells({ does, terminal, verb }: Frame): void {
  verb("ps", "List the containers of running workers, and those left behind.")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/cells.ts")).psVerb(options, terminal)));

  verb("reap", "Remove what dead corral processes left behind, and nothing else.")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/cells.ts")).reapVerb(options, terminal)));
}
