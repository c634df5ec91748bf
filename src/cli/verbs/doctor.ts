import type { Frame } from "./frame.ts";
import { json } from "./options.ts";

export function addDoctor({ does, terminal, verb }: Frame): void {
  verb("doctor")
    .addOption(json())
    .addHelpText("after", "\nExit status: 0 if nothing is missing, otherwise 1.")
    .action(does(async (options) => (await import("../machine/doctor.ts")).doctorVerb(options, terminal)));
}
