import type { Frame } from "./frame.ts";
import { examples, IDS, json, project } from "./options.ts";

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
