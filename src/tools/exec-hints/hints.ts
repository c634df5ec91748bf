import { type ExecOutcome, type Failure, failuresOf } from "./failures.ts";
import { type ExecFacts, wordHint } from "./wording.ts";

const MAX_HINTS = 4;

/**
 * What a failed command's author should know of the sandbox that it ran in: programs say
 * what failed, and only Corral knows what would have been allowed. Empty where the command succeeded.
 *
 * The hints stand beside the output and never change it. They quote nothing of it, and name virtual paths only.
 */
export function hintsFor(outcome: ExecOutcome, facts: ExecFacts): readonly string[] {
  if (outcome.status === "succeeded") return [];
  const failures = failuresOf(outcome);
  const told = failures.filter((failure) => !isToldBy(failure, failures));
  const hints = told.flatMap((failure) => wordHint(failure, facts) ?? []);
  return [...new Set(hints)].slice(0, MAX_HINTS);
}

/** A hint that another one holds already. A program that is missing is a missing file to most who look for it. */
function isToldBy(failure: Failure, all: readonly Failure[]): boolean {
  const other = ({ "read-only": "permission", missing: "command" } as const)[failure as "read-only" | "missing"];
  return other !== undefined && all.includes(other);
}
