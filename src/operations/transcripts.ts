import { type KeptTranscript, TranscriptFolder } from "../agent/transcript/transcript-folder.ts";
import type { ProjectPlace } from "./audit.ts";
import { RequestError } from "./request-error.ts";
import { printableLine } from "./wording/printable.ts";

/** The conversations of the project's agents, the newest first. */
export async function listTranscripts({ stateDir, projectDir }: ProjectPlace): Promise<KeptTranscript[]> {
  return await new TranscriptFolder(stateDir, projectDir).list();
}

/** The conversation of one run: lines of JSON, as `model: script/FILE` reads them. @throws RequestError UNKNOWN_TRANSCRIPT */
export async function readTranscript({ stateDir, projectDir }: ProjectPlace, run: string): Promise<string> {
  const lines = await new TranscriptFolder(stateDir, projectDir).read(run);
  if (lines === null)
    throw new RequestError("UNKNOWN_TRANSCRIPT", run, `there is no transcript of a run ${printableLine(run, 80)}`);
  return lines;
}
