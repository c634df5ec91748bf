import { type ExecOutcome, type Failure, failuresOf } from "./failures.ts";
import { type ExecFacts, wordHint } from "./wording.ts";

const MAX_HINTS = 4;

/**
 * Hints for a failed command: the program reports what failed, and only Corral knows what the sandbox allows. Empty if
 * the command succeeded.
 *
 * Hints are returned beside the output and never change it. They do not quote it, and they name only virtual paths.
 */
export function hintsFor(outcome: ExecOutcome, facts: ExecFacts): readonly string[] {
  if (outcome.status === "succeeded") return [];
  const failures = failuresOf(outcome);
  const distinct = failures.filter((failure) => !isCovered(failure, failures));
  const hints = distinct.flatMap((failure) => wordHint(failure, facts) ?? []);
  return [...new Set(hints)].slice(0, MAX_HINTS);
}

/** True if another failure's hint says the same: most programs report a missing program as a missing file, for example. */
function isCovered(failure: Failure, all: readonly Failure[]): boolean {
  const other = ({ "read-only": "permission", missing: "command" } as const)[failure as "read-only" | "missing"];
  return other !== undefined && all.includes(other);
}
