import type { Frame } from "./frame.ts";
import { examples, json, project } from "./options.ts";

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
    .action(does(async (names, options) => (await import("../machine/images.ts")).buildVerb(names, options, terminal)));
  images
    .verb("ls", "List the images, whether each exists and is up to date, and which workers use it.")
    .addOption(project())
    .addOption(json())
    .action(does(async (options) => (await import("../machine/images.ts")).listImagesVerb(options, terminal)));
  images
    .verb("pull <image>", "Fetch an image from its registry, and print what to write into a worker's file.")
    .addOption(project())
    .addOption(json())
    .addHelpText("after", examples("corral images pull python:3.13-slim"))
    .action(does(async (name, options) => (await import("../machine/images.ts")).pullVerb(name, options, terminal)));
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
      does(async (names, options) => (await import("../machine/images.ts")).removeImagesVerb(names, options, terminal)),
    );
}
