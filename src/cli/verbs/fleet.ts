import type { Command } from "commander";
import type { Frame } from "./frame.ts";
import { askElsewhere, driver, events, IDS, json, junit, notify, project, raw } from "./options.ts";

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
