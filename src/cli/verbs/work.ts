import type { Frame } from "./frame.ts";
import { driver, examples, json, project, repeatable } from "./options.ts";

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
