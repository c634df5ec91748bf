import { Option } from "commander";
import { TARGETS } from "../../operations/convert/layout.ts";
import type { Frame } from "../verbs/frame.ts";
import { driver, events, examples, json, notify, policy } from "../verbs/options.ts";

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
    .action(does(async (sources, options) => (await import("./convert.ts")).convertVerb(sources, options, terminal)));
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
