import { z } from "zod";
import type { CommitAnswer, CommittedChange } from "./hands.ts";
import { defineTool, ToolRefusal } from "./tool.ts";

/** How many changes the text lists; the data holds all of them. */
const MAX_NAMED = 50;

export const commitChangesTool = defineTool({
  name: "commit_changes",
  title: "Apply staged changes",
  description:
    "Applies the changes made so far in directories that stage their changes, and asks a person for approval if the project " +
    "requires it. Without this call, staged changes are applied when the worker ends. Returns the result of each change: " +
    "applied, refused, conflict, denied or held.",
  input: z.strictObject({}),
  uses: "files",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run(_input, hands, signal) {
    const answer = await hands.commit(signal);
    refuseWithheld(answer);
    return { text: textOf(answer.changes), data: { changes: answer.changes, decision: answer.decision } };
  },
});

/** Throws if no change was applied because a person denied them or did not answer. */
function refuseWithheld({ changes, decision }: CommitAnswer): void {
  if (decision === null || decision.outcome === "approved" || changes.some(({ outcome }) => outcome === "applied"))
    return;
  const timedOut = decision.outcome === "timed_out";
  const why = timedOut ? "no answer came in time" : `approval was denied: ${decision.reason}`;
  throw new ToolRefusal(
    timedOut ? "APPROVAL_TIMED_OUT" : "APPROVAL_DENIED",
    `No change was applied: applying needs approval, and ${why}. Your changes are still staged.`,
    { changes },
  );
}

function textOf(changes: readonly CommittedChange[]): string {
  if (changes.length === 0) return "There are no staged changes.";
  const applied = changes.filter(({ outcome }) => outcome === "applied").length;
  const lines = changes
    .slice(0, MAX_NAMED)
    .map(({ path, kind, outcome, reason }) => `${outcome} ${kind} ${path}${reason === null ? "" : `: ${reason}`}`);
  const rest = changes.length > MAX_NAMED ? [`and ${changes.length - MAX_NAMED} more`] : [];
  return [`Applied ${applied} of ${changes.length} changes.`, ...lines, ...rest].join("\n");
}
