import { Option } from "commander";
import { driver, examples, type Frame, json, repeatable } from "../verbs/frame.ts";

export function addCi({ does, group, terminal }: Frame): void {
  const { verb } = group("ci");
  const load = async () => await import("./ci.ts");
  const base = "--base <rev>";
  const job = repeatable("--job <name>", "run this job, and what it needs", "all");
  verb("run", "Run the jobs of the base's ci.yaml on the files of the head.")
    .option(base, "take ci.yaml from this commit", "HEAD")
    .option("--head <rev>", "take the files that are tested from this commit", "HEAD")
    .addOption(event())
    .addOption(job)
    .addOption(repeatable("--matrix <axis=value>", "run only the parts with this value, such as node=22", "all"))
    .option("--out <dir>", "write results below this folder", "ci-results")
    .option("--concurrency <n>", "run so many jobs at once", "2")
    .addOption(driver())
    .addOption(json("print only the results, as JSON"))
    .addHelpText("after", RUN_HELP)
    .action(does(async (options) => await (await load()).ciRunVerb(options, terminal)));
  verb("check", "Find the mistakes in ci.yaml, and list what it runs. Run nothing.")
    .option(base, "check the file of this commit (the file in this folder)")
    .addOption(json())
    .action(does(async (options) => await (await load()).ciCheckVerb(options, terminal)));
  verb("explain <job>", "Print the project and the workers that a job becomes. Run nothing.")
    .option(base, "take ci.yaml from this commit (the file in this folder)")
    .addOption(json())
    .action(does(async (name, options) => await (await load()).ciExplainVerb(name, options, terminal)));
}

function event(): Option {
  const does = "take both from the event of a job of GitHub, Forgejo or GitLab, and fetch them from origin";
  return new Option("--event", does).conflicts(["base", "head"]);
}

const RUN_HELP = `
ci.yaml is that of the base. The head is never checked out on
the host: each job unpacks its files in a container of its own,
without a network. Packages are fetched by a job that runs
nothing of the head, only those that its lock file names.

Caches are written only if the head is the base. A branch reads
them, and changes nothing that a later run reads.

Exit status:
  0    all jobs succeeded
  1    a job failed, or passed a limit
  2    wrong usage, or a mistake in ci.yaml
  125  an error of the Engine: run it again
  126  refused, such as a report that may not leave
  130  cancelled
${examples("corral ci run --head pull/7", "corral ci run --job test --matrix node=22", "corral ci run --event")}`;
