import type { KeptTranscript, Transcripts } from "../agent/transcript.ts";
import { TranscriptFolder } from "../agent/transcript-folder.ts";
import { printableLine } from "../text/visible.ts";
import type { ProjectPlace } from "./audit.ts";
import { chosenId } from "./chosen-id.ts";
import { RequestError } from "./request-error.ts";

/** The conversations of the project's agents, the newest first. */
export async function listTranscripts({ stateDir, projectDir }: ProjectPlace): Promise<KeptTranscript[]> {
  return await new TranscriptFolder(stateDir, projectDir).list();
}

/**
 * The conversation of one run: lines of JSON, as `model: script/FILE` reads them. `asked`: its id, a prefix of it, or `latest`.
 *
 * @throws RequestError UNKNOWN_TRANSCRIPT, AMBIGUOUS_ID
 */
export async function readTranscript({ stateDir, projectDir }: ProjectPlace, asked: string): Promise<string> {
  const folder = new TranscriptFolder(stateDir, projectDir);
  const unknown = () =>
    new RequestError("UNKNOWN_TRANSCRIPT", asked, `there is no transcript of a run ${printableLine(asked, 80)}`);
  const lines = await folder.read(await transcriptId(asked, folder, unknown));
  if (lines === null) throw unknown();
  return lines;
}

/** The run whose transcript a user means. @throws RequestError AMBIGUOUS_ID, and `unknown` if there is none */
export async function transcriptId(
  asked: string,
  transcripts: Pick<Transcripts, "list">,
  unknown: () => RequestError,
): Promise<string> {
  const kept = await transcripts.list();
  const known = kept.map(({ run, modifiedMs }) => ({ id: run, about: new Date(modifiedMs).toISOString() }));
  return chosenId(asked, known, unknown);
}
