import { type Command, Option } from "commander";
import {
  askElsewhere,
  driver,
  events,
  examples,
  type Frame,
  IDS,
  json,
  junit,
  notify,
  policy,
  project,
  raw,
  repeatable,
} from "./frame.ts";

export function addFleet({ does, group, terminal }: Frame): void {
  const fleet = group("fleet");
  fleet.command.addHelpText("after", `\n${IDS}`);
  const ofFleet = (usage: string, description: string): Command => fleet.verb(usage, description).addOption(project());
  ofFleet("ls", "List the fleets of the project, the newest first.")
    .option("--limit <n>", "list at most so many (100)")
    .addOption(json())
    .action(does(async (options) => (await import("../fleet/fleet.ts")).listFleetsVerb(options, terminal)));
  ofFleet(
    "show <id> [key]",
    "Show a fleet: items by status, groups of failures, the slowest. With a key, show one item.",
  )
    .addOption(json())
    .action(
      does(async (id, key, options) => (await import("../fleet/fleet.ts")).showFleetVerb(id, key, options, terminal)),
    );
  ofFleet("logs <id> [key]", "Print what items printed: with a key, both streams of one item as they were.")
    .option("--failed", "print only items that failed")
    .option("--stderr", "print only standard error")
    .addOption(raw())
    .addOption(json("print one item per line as JSON"))
    .addHelpText(
      "after",
      "\nOf each stream the first 16,384 and the last 49,152\ncharacters are kept, as long as the fleet has room.",
    )
    .action(
      does(async (id, key, options) => (await import("../fleet/fleet.ts")).fleetLogsVerb(id, key, options, terminal)),
    );
  ofFleet(
    "machines",
    "List the machines that take part in the queue: what each runs, and why it takes none of a fleet.",
  )
    .addOption(json())
    .addHelpText("after", "\nExit status: 0, or 2 if the project has no queue.")
    .action(does(async (options) => (await import("../fleet/fleet.ts")).machinesVerb(options, terminal)));
  ofFleet("resume <id>", "Resume a fleet that no process runs any more.")
    .addOption(askElsewhere())
    .addOption(driver())
    .addOption(events())
    .addOption(notify())
    .addOption(json("print one result per line as JSON"))
    .addOption(junit())
    .addHelpText("after", LIKE_MAP)
    .action(does(async (id, options) => (await import("../fleet/fleet.ts")).resumeVerb(id, options, terminal)));
  ofFleet("retry <id>", "Run the failed items of a fleet again, in place: each result is replaced when its item ends.")
    .option("--failed", "retry the failed items (the default and only choice)")
    .option("--new", "make a new fleet of them, and leave this one as it is")
    .addOption(askElsewhere())
    .addOption(driver())
    .addOption(events())
    .addOption(notify())
    .addOption(json("print one result per line as JSON"))
    .addOption(junit())
    .addHelpText("after", LIKE_MAP)
    .action(does(async (id, options) => (await import("../fleet/fleet.ts")).retryVerb(id, options, terminal)));
  ofFleet("cancel <id>", "Cancel the waiting items of a fleet; the process that runs it ends the others.").action(
    does(async (id, options) => (await import("../fleet/fleet.ts")).cancelVerb(id, options, terminal)),
  );
  ofFleet("rm [ids...]", "Remove fleets that have ended, with their results. Files that they wrote stay.")
    .option("--before <date>", "remove all that ended before this time; a date alone is UTC")
    .addHelpText("after", "\nExit status: 0, or 2 if one does not exist or has not ended.\nThen none is removed.")
    .action(does(async (ids, options) => (await import("../fleet/fleet.ts")).removeFleetsVerb(ids, options, terminal)));
  ofFleet("results <id>", "Print the result of each item, in the order of the manifest.")
    .option("--jsonl", "print one result per line as JSON (the default)")
    .addOption(json("the same as --jsonl"))
    .option("--csv", "print CSV with a line of headings")
    .option("--status <status>", "print only items with this status")
    .addHelpText("after", "\nExit status: 0, or 2 if there is no such fleet or status.")
    .action(does(async (id, options) => (await import("../fleet/fleet.ts")).resultsVerb(id, options, terminal)));
  ofFleet("report <id>", "Write a self-contained HTML page (timeline, durations, throughput, failures), or JUnit.")
    .option("--html", "write HTML (the default)")
    .option("--junit", "write XML in the form of JUnit, with a test case for each item")
    .option("--output <file>", "write it to this file instead of standard output")
    .action(does(async (id, options) => (await import("../fleet/fleet.ts")).reportVerb(id, options, terminal)));
}

const LIKE_MAP = `
Exit status: that of corral map. If nothing was run, because
the fleet has no such items or another process runs it: 126.`;

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

export function addWork({ does, terminal, verb }: Frame): void {
  verb("work")
    .addOption(project())
    .option("--concurrency <n>", "run so many items at once, or auto", "auto")
    .option("--name <name>", "set the name of this machine in lists (default: its host name)")
    .addOption(repeatable("--label <label>", "add a label, such as gpu"))
    .option("--grants <role>", "print the SQL that lets a role of PostgreSQL do this, and nothing else")
    .addOption(driver())
    .addOption(json("print what happens as JSON, one event per line"))
    .addHelpText("after", WORK_HELP)
    .action(does(async (options) => (await import("../fleet/work.ts")).workVerb(options, terminal)));
}

const WORK_HELP = `
The queue is that of the project (\`queue\` in corral.yaml) or
of CORRAL_QUEUE. This machine needs its own copy of the
project: it takes no items of a fleet that differs from it,
and \`corral fleet show\` says why. Items read no file of this
machine: the coordinator sends what they read.

If the queue or the container engine is away, it waits.

Ctrl-C gives back what waits and lets running items end;
Ctrl-C twice stops them, and other machines run them again.

The address of the queue should be that of a role that may do
nothing but this. The owner of the tables makes one, and runs
the same again after an upgrade:

  corral work --grants corral_machine | psql postgres://…

Exit status:
  0    it was stopped, and all that it ran is delivered
  2    wrong usage, or there is no queue
  125  the queue or the container engine refuses, or the
       images are missing
  130  it was stopped at once
${examples("corral work", "corral work --concurrency 8 --label gpu --json")}`;
