import { type KeptTranscript, TranscriptFolder } from "../agent/transcript/transcript-folder.ts";
import { RequestError } from "./request-error.ts";
import { printableLine } from "./wording/printable.ts";

/** Whose transcripts. Both paths are absolute; `projectDir` contains no symbolic link, and need not exist any more. */
export interface TranscriptPlace {
  readonly stateDir: string;
  readonly projectDir: string;
}

/** The conversations of the project's agents, the newest first. */
export async function listTranscripts({ stateDir, projectDir }: TranscriptPlace): Promise<KeptTranscript[]> {
  return await new TranscriptFolder(stateDir, projectDir).list();
}

/** The conversation of one run: lines of JSON, as `model: script/FILE` reads them. @throws RequestError UNKNOWN_TRANSCRIPT */
export async function readTranscript({ stateDir, projectDir }: TranscriptPlace, run: string): Promise<string> {
  const lines = await new TranscriptFolder(stateDir, projectDir).read(run);
  if (lines === null)
    throw new RequestError("UNKNOWN_TRANSCRIPT", run, `there is no transcript of a run ${printableLine(run, 80)}`);
  return lines;
}
