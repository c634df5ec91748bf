import { Option } from "commander";
import type { Frame } from "./frame.ts";
import { askElsewhere, driver, events, examples, json, junit, notify, policy, project, repeatable } from "./options.ts";

export function addMap({ does, terminal, verb }: Frame): void {
  verb("map")
    .addOption(project())
    .option("--over <glob>", "make one item for each file that matches")
    .option(
      "--manifest <file>",
      "make one item for each line of a .jsonl or .csv file, or of paths with --format paths; - reads standard input",
    )
    .addOption(new Option("--format <form>", "read the manifest in this format").choices(["jsonl", "csv", "paths"]))
    .addOption(repeatable("--within <folder>", "let the manifest name files of this folder too"))
    .option("--fleet <name>", "read all of this from fleets/NAME.yaml")
    .addOption(repeatable("--attach <template>", "give each item this file, such as {path}=in.pdf"))
    .addOption(
      repeatable(
        "--allow-read <template>",
        "let each item read only this of the worker's files, and write nothing without --allow-write",
        "all of them",
      ),
    )
    .addOption(
      repeatable(
        "--allow-write <template>",
        "let each item write only this, such as /text/{stem}",
        "all that the worker may write",
      ),
    )
    .option("--input <template>", "give each item this JSON on standard input; fields in its texts are filled in")
    .option("--key <template>", "name each item in the results")
    .option("--concurrency <n>", "run so many items at once, or auto; 0 leaves all to other machines")
    .option("--machines", "let other machines run items too (corral work)")
    .addOption(repeatable("--needs <label>", "let only machines with this label run them, such as gpu"))
    .option("--priority <n>", "let machines take items of fleets with a higher one first (0)")
    .addOption(
      new Option("--reuse <how>", "use one container for each item, or one for many").choices(["fresh", "scrubbed"]),
    )
    .option("--retries <n>", "retry an item whose worker failed so many times (0)")
    .option("--max-failures <n>", "start no more items after so many have failed")
    .option("--timeout <time>", "end an item that takes longer, such as 30s; at most the worker's own limit")
    .option("--allow-empty", "succeed even if there is no item")
    .option("--dry-run [n]", "run nothing: check all items, and show the first (3) with their sandboxes and inputs")
    .option(
      "--no-cache",
      "run every item, even if it has succeeded before with the same worker, policy, image, input and files",
    )
    .addOption(policy())
    .addOption(driver())
    .addOption(askElsewhere())
    .addOption(events())
    .addOption(notify())
    .addOption(json("print one result per line as JSON"))
    .addOption(junit())
    .addHelpText("after", MAP_HELP)
    .action(
      does(async (worker, options) => {
        const { service } = terminal;
        if (service === undefined) return await (await import("../fleet/map.ts")).mapVerb(worker, options, terminal);
        return await (await import("../fleet/remote-fleet.ts")).mapOverHost(worker, options, service, terminal);
      }),
    );
}

const MAP_HELP = `
Text in braces is a field of the item: path, relative, name,
stem, ext and dir of a file, or the fields of a manifest's
line. Every item has index (from 0; {index:4} is 0007) and
hash (SHA-256 of the file or the line; {hash:12} its start).
A manifest on standard input is .jsonl without --format.

Ctrl-C waits for running items; Ctrl-C twice stops them.
In both cases \`corral fleet resume\` continues the fleet.

Exit status:
  0    every item succeeded
  1    an item did not succeed; with --dry-run, one would be refused
  2    wrong usage, or there is no item
  3    no item failed, but changes wait for consent
  126  nothing was run
  130  interrupted
${examples(
  "corral map extract-text --over 'inbox/*.pdf' \\",
  "    --attach '{path}=in.pdf' \\",
  "    --allow-read '/text/{stem}' --allow-write '/text/{stem}'",
  "corral map translate --manifest items.jsonl \\",
  `    --input '{"lang":"{lang}"}' --json > results.jsonl`,
  "corral map --fleet nightly",
)}`;
