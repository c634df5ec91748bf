import type { Approver, Question } from "../../approval/approver.ts";
import { isShareable, QueuedApprover } from "../../approval/queued-approver.ts";
import type { Project } from "../../declarations/project.ts";
import { InboxBoard } from "../../inbox/inbox-board.ts";
import { currentOwner, readSealKey } from "../../state/owner.ts";
import { projectPaths } from "../../state/state-paths.ts";
import type { Emit } from "../model/events.ts";
import type { OpenOptions } from "./options.ts";

/** Questions on the board that may wait at once. `QueuedApprover` bounds those that wait behind them. */
const MAX_AT_ONCE = 1000;

/** The inbox of a project, for the questions of this process; null: the project answers only where they come up. */
export function questionBoard(
  { dir, approval }: Pick<Project, "dir" | "approval">,
  { stateDir }: Pick<OpenOptions, "stateDir">,
  emit: Emit,
): InboxBoard | null {
  if (approval.inbox === "closed") return null;
  const place = () => ({
    dir: projectPaths(stateDir, dir).inbox,
    key: readSealKey(stateDir),
    self: currentOwner(),
  });
  return new InboxBoard(dir, place, ({ message }) => {
    const detail = `the inbox of questions cannot be used: ${message}`;
    emit({ type: "trouble", run: "", root: "", parent: null, worker: "corral", attachments: [], detail });
  });
}

/** The approver, with its questions in the inbox as well; if no user can answer here, a question waits there, if the settings say so. */
export function sharedApprover(
  approver: Approver,
  board: InboxBoard | null,
  {
    waits,
    timeoutMs,
    onWaiting,
  }: { waits: boolean; timeoutMs: number; onWaiting?: ((id: string, question: Question) => void) | undefined },
): Approver {
  if (board === null) return approver;
  if (isShareable(approver)) approver.shareOn(board);
  if (!waits) return approver;
  const elsewhere = new QueuedApprover({
    ...{ ask: null, timeoutMs, atOnce: MAX_AT_ONCE, at: "board" },
    ...(onWaiting === undefined ? {} : { onPosted: onWaiting }),
  });
  elsewhere.shareOn(board);
  return {
    async decide(request, signal) {
      const decision = await approver.decide(request, signal);
      return decision.unasked ? await elsewhere.decide(request, signal) : decision;
    },
  };
}
