import { z } from "zod";
import type { CommitAnswer, CommittedChange } from "./hands.ts";
import { defineTool, ToolRefusal } from "./tool.ts";

/** How many changes are named in the text; the data holds more. */
const MAX_NAMED = 50;

export const commitChangesTool = defineTool({
  name: "commit_changes",
  title: "Apply the changes",
  description:
    "Applies what was changed so far in directories whose changes wait for approval, after a person has agreed where that is needed. " +
    "Without it they are applied when the work is done. Answers with what became of each change.",
  input: z.strictObject({}),
  uses: "files",
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run(_input, hands, signal) {
    const answer = await hands.commit(signal);
    refuseWithheld(answer);
    return { text: textOf(answer.changes), data: { changes: answer.changes, decision: answer.decision } };
  },
});

/** Nothing of it was applied, because of an answer or for want of one. */
function refuseWithheld({ changes, decision }: CommitAnswer): void {
  if (decision === null || decision.outcome === "approved" || changes.some(({ outcome }) => outcome === "applied"))
    return;
  const timedOut = decision.outcome === "timed_out";
  const why = timedOut ? "nobody answered in time" : `it was denied: ${decision.reason}`;
  throw new ToolRefusal(
    timedOut ? "APPROVAL_TIMED_OUT" : "APPROVAL_DENIED",
    `To apply the changes needs approval, and ${why}. They are still as you made them; nothing was applied.`,
    { changes },
  );
}

function textOf(changes: readonly CommittedChange[]): string {
  if (changes.length === 0) return "There is nothing to apply.";
  const applied = changes.filter(({ outcome }) => outcome === "applied").length;
  const lines = changes
    .slice(0, MAX_NAMED)
    .map(({ path, kind, outcome, reason }) => `${outcome} ${kind} ${path}${reason === null ? "" : `: ${reason}`}`);
  const rest = changes.length > MAX_NAMED ? [`and ${changes.length - MAX_NAMED} more`] : [];
  return [`${applied} of ${changes.length} changes were applied.`, ...lines, ...rest].join("\n");
}
