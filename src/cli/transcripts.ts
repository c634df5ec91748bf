import { listTranscripts, readTranscript, type TranscriptPlace } from "../operations/transcripts.ts";
import { formatBytes } from "../sandbox/units.ts";
import { stateDirFrom } from "../state/state-dir.ts";
import { projectFolder } from "./terminal/arguments.ts";
import { columns, printJson, say, type Terminal } from "./terminal/terminal.ts";
import { transcriptText } from "./transcript-text.ts";

export interface TranscriptOptions {
  readonly project: string;
  readonly json?: boolean;
}

/** `corral transcripts ls`: the conversations of the project's agents, the newest first. */
export async function listVerb({ project, json }: TranscriptOptions, terminal: Terminal): Promise<number> {
  const kept = await listTranscripts(await placeOf(project, terminal));
  if (json) printJson(terminal, kept);
  else if (kept.length === 0) say(terminal, "There are no transcripts of this project.");
  else {
    const rows = kept.map(({ run, bytes, modifiedMs }) => [
      run,
      new Date(modifiedMs).toISOString(),
      formatBytes(bytes),
    ]);
    terminal.stdout.write(`${columns([["RUN", "ENDED", "SIZE"], ...rows])}\n`);
  }
  return 0;
}

/** `corral transcripts show`: one of them; with `--json` the lines as they were written. */
export async function showVerb(run: string, { project, json }: TranscriptOptions, terminal: Terminal): Promise<number> {
  const lines = await readTranscript(await placeOf(project, terminal), run);
  terminal.stdout.write(json ? lines : `${transcriptText(lines)}\n`);
  return 0;
}

async function placeOf(project: string, terminal: Terminal): Promise<TranscriptPlace> {
  return { stateDir: stateDirFrom(terminal.env), projectDir: await projectFolder(project, terminal) };
}
