import type { Frame } from "./frame.ts";
import { examples, json, project } from "./options.ts";

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
