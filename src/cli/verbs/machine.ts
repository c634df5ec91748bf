import { driver, examples, type Frame, json, project } from "./frame.ts";

export function addCells({ does, terminal, verb }: Frame): void {
  verb("ps")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/machine.ts")).psVerb(options, terminal)));

  verb("reap")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/machine.ts")).reapVerb(options, terminal)));

  verb("du")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/machine.ts")).duVerb(options, terminal)));

  verb("gc")
    .option("--dry-run", "print what would be removed, and remove nothing")
    .option("--older-than <age>", "remove what is older, such as 30d or 12h, and ended fleets too")
    .addOption(json())
    .addHelpText("after", GC_HELP)
    .action(does(async (options) => (await import("../machine/machine.ts")).gcVerb(options, terminal)));
}

const GC_HELP = `
Without --older-than, runs go by the retention of their
project, transcripts and unused mirrors after 30 days, and
fleets stay. Changes that wait and audit trails always stay.

Exit status: 0, or 1 if something could not be read.
${examples("corral gc --dry-run", "corral gc --older-than 90d")}`;

export function addDoctor({ does, terminal, verb }: Frame): void {
  verb("doctor")
    .addOption(json())
    .addHelpText("after", "\nExit status: 0 if nothing is missing, otherwise 1.")
    .action(does(async (options) => (await import("../machine/machine.ts")).doctorVerb(options, terminal)));
}

export function addVerify({ does, terminal, verb }: Frame): void {
  verb("verify")
    .addOption(driver())
    .option("--policy <name>", "attack under this policy alone (untrusted, batch and default)")
    .option("--runtime <name>", "let this runtime of the Engine make the containers, such as runsc")
    .option("--full", "attack under each policy, with both the Engine and runc or the driver of --driver, and measure")
    .addOption(project())
    .addOption(json())
    .option("--html", "print the report as a page")
    .addHelpText("after", VERIFY_HELP)
    .action(does(async (options) => (await import("../machine/verify.ts")).verifyVerb(options, terminal)));
}

const VERIFY_HELP = `
Everything runs in a project and a state directory that are
removed afterwards. Policies of the nearest project can be
named too.

Exit status: 0 if all that was tried held; 1 if something got
through, or could not be tried.
${examples("corral verify", "corral verify --policy untrusted --runtime runsc", "corral verify --full --html > report.html")}`;

export function addImages({ does, group, terminal }: Frame): void {
  const images = group("images");
  images
    .verb(
      "build [names...]",
      "Build, pull and prepare what is missing or out of date: all of Corral's and of the project's, or only these.",
    )
    .addOption(project())
    .addOption(json())
    .addHelpText(
      "after",
      examples("corral images build", "corral images build python", "corral images build images/ocr"),
    )
    .action(
      does(async (names, options) => (await import("../machine/machine.ts")).buildVerb(names, options, terminal)),
    );
  images
    .verb("ls", "List the images, whether each exists and is up to date, and which workers use it.")
    .addOption(project())
    .addOption(json())
    .action(does(async (options) => (await import("../machine/machine.ts")).listImagesVerb(options, terminal)));
  images
    .verb("pull <image>", "Fetch an image from its registry, and print what to write into a worker's file.")
    .addOption(project())
    .addOption(json())
    .addHelpText("after", examples("corral images pull python:3.13-slim"))
    .action(does(async (name, options) => (await import("../machine/machine.ts")).pullVerb(name, options, terminal)));
  images
    .verb(
      "rm [names...]",
      "Remove images and environments that were made for the project. The next run makes what it needs.",
    )
    .option("--unused", "remove all that are stale: not what the project's workers would get now")
    .option("--yes", "do not ask")
    .addOption(project())
    .addOption(json())
    .addHelpText("after", examples("corral images rm images/ocr", "corral images rm --unused --yes"))
    .action(
      does(async (names, options) =>
        (await import("../machine/machine.ts")).removeImagesVerb(names, options, terminal),
      ),
    );
}
