import type { RunEvent } from "../run/events.ts";
import type { RunResult } from "../run/result.ts";
import { printable, printableLine } from "./printable.ts";

/** What the Engine or the host said; it is for people, and may hold host paths. */
export function troubleText({ worker, detail }: RunEvent & { readonly type: "trouble" }): string {
  return `corral: trouble in ${printableLine(worker, 80)}: ${printable(detail)}`;
}

/** How a run ended that did not succeed. */
export function endingText({ worker, status, error, violations }: RunResult): string {
  if (violations.length === 0) return `corral: ${printable(error?.message ?? status)}`;
  const reasons = violations.map(({ message }) => `  - ${printableLine(message, 1000)}`);
  return [`corral: worker ${worker} was refused:`, ...reasons].join("\n");
}
