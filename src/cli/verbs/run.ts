import { Option } from "commander";
import { TARGETS } from "../../operations/convert/layout.ts";
import {
  approve,
  askElsewhere,
  driver,
  events,
  examples,
  type Frame,
  json,
  notify,
  policy,
  project,
  raw,
  repeatable,
} from "./frame.ts";
import { oneWorker, save, withoutProject } from "./without-project.ts";

export function addRun({ does, terminal, verb }: Frame): void {
  const run = verb("run").usage("[options] <worker> [-- arguments...]\n       corral run [options] -- <command...>");
  withoutProject(run.addOption(project()))
    .addOption(save())
    .option("--input <json>", "give the worker this JSON on its standard input; @FILE reads a file, - standard input")
    .addOption(repeatable("--attach <path[=name]>", "give the worker this file below /attachments"))
    .option(
      "--attach-tree <commit[=name]>",
      "give the worker the files of a git commit as /attachments/tree.tar, as they are: no hook, filter or attribute of git is applied",
    )
    .addOption(policy())
    .addOption(approve())
    .addOption(askElsewhere())
    .addOption(driver())
    .option(
      "--apply-failed",
      "apply what the worker wrote to staged directories even if it fails, such as reports of tests",
    )
    .option("--tree", "print the tree of calls on standard error at the end, even without a terminal")
    .option("--stream", "print what agents say and do on standard error at once, even without a terminal")
    .option("--record <file>", "write an agent's conversation to a .jsonl file that `model: script/FILE` replays")
    .option("--continue <run>", "continue the conversation of an agent's earlier run, with the rights that it has now")
    .option(
      "--learn-network",
      "ask about each host that the worker tries to reach, and print the change that allows them",
    )
    .addOption(raw())
    .addOption(json("print only the result, with all calls, as JSON"))
    .addHelpText("after", RUN_HELP)
    .action(
      does(async (_worker, _words, options, command) => {
        const { worker, words } = oneWorker(command);
        const said = { ...options, words };
        const { service } = terminal;
        if (service === undefined && terminal.env.CORRAL_DRIVER === "seatbelt")
          return await (await import("../run/seatbelt.ts")).runOnMac(worker, said, terminal);
        if (service === undefined) return await (await import("../run/run.ts")).runVerb(worker, said, terminal);
        return await (await import("../run/remote-run.ts")).runOverHost(worker, said, service, terminal);
      }),
    );
}

const RUN_HELP = `
Without a project, the command after -- runs in a container
that sees what --ro and --rw give. The policy is untrusted:
no network, never root, low limits; --policy default allows
more. What it writes below --rw is shown as a diff at the
end, and you are asked. Without a terminal it waits for
\`corral changes apply\`; --apply asks nothing. If a folder of
--rw below the working directory is missing, it is made.
Its standard input is that of corral, but for a terminal.

The worker's standard output is on standard output,
everything else on standard error. A terminal gets text and
colours of it, without control sequences.

Exit status: the worker's own, or
  2    wrong usage
  124  timed out
  125  an error of the Engine, or the run was lost
  126  refused or denied
  130  cancelled
  137  killed for memory
  141  nobody reads its output any more
  153  over a limit of output or disk
  128+n  ended by signal n
${examples(
  "corral run --image corral/documents --ro inbox --rw out \\",
  "    -- pdftotext /inbox/a.pdf /out/a.txt",
  "corral run triage --project inbox",
  "corral run extract --attach ~/paper.pdf=in.pdf \\",
  `    --input '{"pages": 3}'`,
  "corral run test --attach-tree origin/main",
  "corral run extract --attach /data/paper.pdf \\",
  "    --approve auto_deny --json",
)}`;

export function addConvert({ does, terminal, verb }: Frame): void {
  verb("convert")
    .addOption(new Option("--to <what>", "make this of each file").choices(TARGETS))
    .option("--out <dir>", "write the results below this folder; a missing one is made")
    .option("--password-file <file>", "try these passwords, one a line, for what is encrypted")
    .option("--ocr <lang>", "read pictures too, in this language, such as eng or eng+deu")
    .option("--dpi <n>", "make pages of so many pixels an inch (150)")
    .option("--timeout <time>", "end a file that takes longer, such as 10m (grows with its size, from 15m)")
    .option("--memory <size>", "let a file use at most this much memory (grows with its size, from 1g)")
    .option("--disk <size>", "let a file become at most this much (grows with its size, from 1g)")
    .option("--concurrency <n>", "convert so many files at once, or auto")
    .option("--no-cache", "convert every file, even if its result is there")
    .option("--retry", "convert again what was not possible or refused the last time")
    .option("--init <dir>", "write the workers and programs that do all this as a project, and convert nothing")
    .addOption(policy())
    .addOption(driver())
    .addOption(events())
    .addOption(notify())
    .addOption(json("print one result per line as JSON"))
    .addHelpText("after", CONVERT_HELP)
    .action(
      does(async (sources, options) => (await import("../convert/convert.ts")).convertVerb(sources, options, terminal)),
    );
}

const CONVERT_HELP = `
A source is a folder or a file. What a file is comes from its
content; each has its own container without a network, sees
itself alone, and writes OUT/PATH/ alone.

text      what can be read in it, with what is inside of mails
          and archives; with --ocr of pictures too
pdf       a PDF; what was active in the file may still be
safe-pdf  a PDF of nothing but the pixels of its pages
png       a picture of each page
parts     what is inside of it or attached to it
facts     what it is and has, as JSON

OUT/results.jsonl and OUT/report.html say of each file: done,
not possible and why, or refused. The same command again
converts what is new or has changed, and what ran out of
time, failed or was refused.

Exit status:
  0    every file is done
  1    a file is not possible or refused
  2    wrong usage, or there is no file
  126  nothing was run
  130  interrupted
${examples("corral convert --to text inbox --out texts", "corral convert --to safe-pdf paper.pdf --out safe")}`;

export function addCi({ does, group, terminal }: Frame): void {
  const { verb } = group("ci");
  const load = async () => await import("../ci/ci.ts");
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
    .addHelpText("after", CI_RUN_HELP)
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

const CI_RUN_HELP = `
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
