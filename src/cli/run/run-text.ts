import type { RunEvent } from "../../run/model/events.ts";
import type { RunResult } from "../../run/model/result.ts";
import { printable, printableLine } from "../../text/visible.ts";

/** What the Engine or the host said; it is for people, and may hold host paths. */
export function troubleText({ worker, detail }: RunEvent & { readonly type: "trouble" }): string {
  return `corral: error in ${printableLine(worker, 80)}: ${printable(detail)}`;
}

/** How a run ended that did not succeed. */
export function endingText({ worker, status, error, violations, changeset }: RunResult): string {
  // The error names the refused changes and the result of all changes.
  const ending = `corral: ${printable(error?.message ?? status)}`;
  if (violations.length === 0 || changeset !== null) return ending;
  const reasons = violations.map(({ message }) => `  - ${printableLine(message, 1000)}`);
  return [status === "refused" ? `corral: worker ${worker} was refused:` : ending, ...reasons].join("\n");
}

/** The outcomes of a run's changes in staged directories, and the command for those that wait, unless `told` has it; null if nothing was changed. */
export function changesText({ run, changeset }: RunResult, told: string): string | null {
  if (changeset === null) return null;
  const { counts, id } = changeset;
  const outcomes = Object.entries(counts).filter(([, count]) => count > 0);
  const summary = outcomes.map(([outcome, count]) => `${count} ${outcome}`).join(", ");
  const way = id === null || told.includes("corral changes") ? "" : `; see \`corral changes show ${run}\``;
  return `corral: changes: ${summary}${way}`;
}
