import type { ModelMessage } from "ai";
import { MAX_CONTINUED, readTranscript } from "../agent/continued.ts";
import type { Transcripts } from "../agent/transcript.ts";
import type { WorkerDefinition } from "../declarations/worker/worker.ts";
import type { Continued } from "../run/model/job.ts";
import { currentOwner, isDead, parseOwner } from "../state/owner.ts";
import { printableLine } from "../text/visible.ts";
import { RequestError } from "./request-error.ts";
import { transcriptId } from "./transcripts.ts";

/**
 * The conversation of an agent's run that has ended, for another run of the same worker. It carries no rights: the new run's
 * sandbox is derived from the project's files as they are now. `asked`: the run's id, a prefix of it, or `latest`.
 *
 * @throws RequestError UNKNOWN_TRANSCRIPT, AMBIGUOUS_ID, CONTINUE
 */
export async function continuedRun(
  asked: string,
  worker: WorkerDefinition,
  transcripts: Transcripts,
): Promise<Continued> {
  const shown = printableLine(asked, 80);
  const refused = (why: string): RequestError =>
    new RequestError("CONTINUE", asked, `cannot continue run ${shown}: ${why}`);
  if (worker.agent === undefined)
    throw refused(`worker ${worker.name} is a command; only the run of an agent (\`model:\`) can be continued`);
  const unknown = () => {
    const message = `there is no transcript of a run ${shown}; \`corral transcripts ls\` lists them`;
    return new RequestError("UNKNOWN_TRANSCRIPT", asked, message);
  };
  const run = await transcriptId(asked, transcripts, unknown);
  const conversations: (readonly ModelMessage[])[] = [];
  for (let next: string | undefined = run; next !== undefined; ) {
    const text: string | null = await transcripts.read(next);
    if (text === null && next === run) throw unknown();
    if (text === null) throw refused(`the transcript of run ${next}, which it continues, does not exist any more`);
    const found = readTranscript(text);
    if (found === null) throw refused("its transcript is not complete: a line of it cannot be read; start a new run");
    const { head, end, messages } = found;
    if (head.worker !== worker.name)
      throw refused(`it is a run of worker ${printableLine(head.worker, 80)}, and not of ${worker.name}`);
    if (head.run !== head.root)
      throw refused(`it was called by another run; continue that (${printableLine(head.root, 20)})`);
    if (end === null) throw refused(isRunning(head.owner) ? STILL_RUNNING : INCOMPLETE);
    conversations.unshift(messages);
    if (conversations.length > MAX_CONTINUED) throw refused(`more than ${MAX_CONTINUED} runs continue each other`);
    next = head.continues;
  }
  return { run, messages: conversations.flat() };
}

const STILL_RUNNING = "it is still running; wait until it has ended, or cancel it";
const INCOMPLETE =
  "its transcript is not complete: its process was killed, or the transcript became too long; start a new run";

function isRunning(text: string | undefined): boolean {
  const owner = text === undefined ? null : parseOwner(text);
  return owner !== null && !isDead(owner, currentOwner());
}
