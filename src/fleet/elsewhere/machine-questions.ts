import { type Decision, denied } from "../../approval/approver.ts";
import type { FleetJob } from "../items/item-job.ts";
import type { AskedElsewhere } from "../model/question.ts";
import { judgedQuestion } from "./judged-question.ts";

/** Decides on questions of machines as on those of runs of this process: rules, mode, approver, inbox, audit trail. */
export function decidedHere(job: FleetJob, onTrouble: (detail: string) => void) {
  return async (asked: AskedElsewhere, signal: AbortSignal): Promise<Decision> => {
    const judged = await judgedQuestion(asked, job);
    if (judged.ok) return await job.env.approver.decide(judged.request, signal);
    // A machine may ask for ever: one line for each attempt is enough.
    if (asked.number === 0)
      onTrouble(`machine ${asked.machine} asks what item ${asked.request.key} may not ask: ${judged.why}`);
    return denied(`its coordinator refuses the question: ${judged.why}`);
  };
}
