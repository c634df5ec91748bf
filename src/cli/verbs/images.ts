import type { Frame } from "./frame.ts";
import { examples, json } from "./options.ts";

export function addImages({ does, group, terminal }: Frame): void {
  const images = group("images", "List and build the images that come with Corral.");
  images
    .verb("build [names...]", "Build the images that are missing or out of date: all of them, or these and the base.")
    .addOption(json())
    .addHelpText("after", examples("corral images build", "corral images build python"))
    .action(does(async (names, options) => (await import("../machine/images.ts")).buildVerb(names, options, terminal)));
  images
    .verb("ls", "List the images, and whether each exists and is up to date.")
    .addOption(json())
    .action(does(async (options) => (await import("../machine/images.ts")).listVerb(options, terminal)));
}
