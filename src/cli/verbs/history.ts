import type { Command } from "commander";
import { examples, type Frame, IDS, json, project, raw } from "./frame.ts";

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
    .option("--service <name>", "print what a service of it printed")
    .option("-n, --lines <n>", "print only the last n lines of each stream")
    .option("-f, --follow", "continue until the run has ended")
    .addOption(raw())
    .addHelpText("after", LOGS_HELP)
    .action(does(async (id, options) => (await import("../history/runs.ts")).runLogsVerb(id, options, terminal)));
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

export function addTranscripts({ does, group, terminal }: Frame): void {
  const transcripts = group("transcripts");
  transcripts
    .verb("ls", "List the transcripts of the project, the newest first.")
    .addOption(project())
    .addOption(json())
    .action(does(async (options) => (await import("../trail/transcripts.ts")).listTranscriptsVerb(options, terminal)));
  transcripts
    .verb("show <run>", "Show one transcript.")
    .addOption(project())
    .addOption(json("print lines of JSON, as `model: script/FILE` reads them"))
    .addHelpText("after", `\n${IDS}\n${examples("corral transcripts show latest")}`)
    .action(
      does(async (run, options) =>
        (await import("../trail/transcripts.ts")).showTranscriptVerb(run, options, terminal),
      ),
    );
}

export function addAudit({ does, terminal, verb }: Frame): void {
  verb("audit")
    .addOption(project())
    .option("--verify", "verify every record's seal and place, and print the verdict")
    .option("--run <id>", "show only this run, or the tree of calls below it: an id, its beginning, or latest")
    .option("--type <type>", "show only records of this type")
    .option("--since <date>", "show only records since this time; a date alone is UTC")
    .option("--limit <n>", "show at most so many, the newest (50; with --json all)")
    .addOption(json("print one record per line as JSON; with --verify the verdict"))
    .addHelpText("after", AUDIT_HELP)
    .action(does(async (options) => (await import("../trail/audit.ts")).auditVerb(options, terminal)));
}

const AUDIT_HELP = `
Exit status: 0. With --verify: 1 if a record was changed,
removed, inserted or moved.
${examples(
  "corral audit --project inbox --type approval",
  "corral audit --since 2025-01-31 --json | jq -r .type",
  "corral audit --verify",
)}`;
