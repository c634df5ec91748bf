import type { Command } from "commander";
import type { Frame } from "./frame.ts";
import { examples, IDS, json, project, raw } from "./options.ts";

export function addRuns({ does, group, terminal }: Frame): void {
  const runs = group("runs");
  runs.command.addHelpText("after", RUNS_HELP);
  const ofRuns = (usage: string, description: string): Command => runs.verb(usage, description).addOption(project());
  ofRuns("ls", "List the runs of the project, the newest first. Items of fleets are in their fleets.")
    .option("--worker <name>", "list only runs of this worker")
    .option("--status <status>", "list only runs with this status, such as failed, running or interrupted")
    .option("--limit <n>", "list at most so many (50)")
    .option("--all-projects", "list those of every project")
    .addOption(json())
    .action(does(async (options) => (await import("../history/runs.ts")).listRunsVerb(options, terminal)));
  ofRuns("show <id>", "Show one run: times, limits, digests of its input, its calls, and how it ended.")
    .addOption(json())
    .action(does(async (id, options) => (await import("../history/runs.ts")).showRunVerb(id, options, terminal)));
  ofRuns("logs <id>", "Print what a run printed, each stream to its own.")
    .option("--stdout", "print only its standard output")
    .option("--stderr", "print only its standard error, to standard output")
    .option("-n, --lines <n>", "print only the last n lines of each stream")
    .option("-f, --follow", "continue until the run has ended")
    .addOption(raw())
    .addHelpText("after", LOGS_HELP)
    .action(does(async (id, options) => (await import("../history/logs.ts")).runLogsVerb(id, options, terminal)));
  ofRuns("stop <id>", "Stop a run of any corral process of yours; its status becomes cancelled.")
    .addOption(json())
    .addHelpText("after", "\nExit status: 0, or 1 if it has not ended after 15 s.")
    .action(does(async (id, options) => (await import("../history/runs.ts")).stopVerb(id, options, terminal)));
  ofRuns("rm [ids...]", "Remove runs from the history. Asks at a terminal. Running ones stay.")
    .option("--before <date>", "remove all that began before this time; a date alone is UTC")
    .option("--all", "remove all of the project")
    .option("--yes", "remove without being asked")
    .addOption(json())
    .action(does(async (ids, options) => (await import("../history/runs.ts")).removeRunsVerb(ids, options, terminal)));
}

const RUNS_HELP = `
${IDS}
Items of fleets are not here: see \`corral fleet results\`.
${examples("corral runs ls --status failed", "corral runs show latest", "corral runs logs latest --stderr -n 20")}`;

const LOGS_HELP = `
Of a long stream, the first 512 KiB and at least the last
512 KiB are kept. Bytes are printed as they are; a terminal
gets text and colours, without control sequences.`;
