import { type KeptTranscript, TranscriptFolder } from "../agent/transcript/transcript-folder.ts";
import { UnknownTranscriptError } from "./request-error.ts";

/** Whose transcripts. Both paths are absolute; `projectDir` contains no symbolic link, and need not exist any more. */
export interface TranscriptPlace {
  readonly stateDir: string;
  readonly projectDir: string;
}

/** The conversations of the project's agents, the newest first. */
export async function listTranscripts({ stateDir, projectDir }: TranscriptPlace): Promise<KeptTranscript[]> {
  return await new TranscriptFolder(stateDir, projectDir).list();
}

/** The conversation of one run: lines of JSON, as `model: script/FILE` reads them. @throws UnknownTranscriptError */
export async function readTranscript({ stateDir, projectDir }: TranscriptPlace, run: string): Promise<string> {
  const lines = await new TranscriptFolder(stateDir, projectDir).read(run);
  if (lines === null) throw new UnknownTranscriptError(run);
  return lines;
}
