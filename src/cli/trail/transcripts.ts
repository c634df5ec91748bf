import { listTranscripts, readTranscript } from "../../operations/transcripts.ts";
import { formatBytes } from "../../sandbox/units.ts";
import { type ProjectOptions, placeOf } from "../terminal/arguments.ts";
import { printList, type Terminal } from "../terminal/terminal.ts";
import { transcriptText } from "./transcript-text.ts";

/** `corral transcripts ls`: the conversations of the project's agents, the newest first. */
export async function listVerb(options: ProjectOptions, terminal: Terminal): Promise<number> {
  const kept = await listTranscripts(await placeOf(options, terminal));
  printList(terminal, options.json, kept, {
    head: ["RUN", "ENDED", "SIZE"],
    rowOf: ({ run, bytes, modifiedMs }) => [run, new Date(modifiedMs).toISOString(), formatBytes(bytes)],
    none: "There are no transcripts of this project.",
  });
  return 0;
}

/** `corral transcripts show`: one of them; with `--json` the lines as they were written. */
export async function showVerb(run: string, options: ProjectOptions, terminal: Terminal): Promise<number> {
  const lines = await readTranscript(await placeOf(options, terminal), run);
  terminal.stdout.write(options.json ? lines : `${transcriptText(lines)}\n`);
  return 0;
}
