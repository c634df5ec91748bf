/** What became of an item, coarse enough to be told apart by colour. */
export type Outcome = "succeeded" | "cached" | "failed" | "limited" | "refused" | "stopped";

/** In the order in which they are drawn and listed. */
export const OUTCOMES: readonly { readonly outcome: Outcome; readonly label: string }[] = [
  { outcome: "succeeded", label: "succeeded" },
  { outcome: "cached", label: "cached" },
  { outcome: "failed", label: "failed" },
  { outcome: "limited", label: "over a limit" },
  { outcome: "refused", label: "refused or denied" },
  { outcome: "stopped", label: "cancelled or lost" },
];

const OUTCOME_OF: ReadonlyMap<string, Outcome> = new Map([
  ["succeeded", "succeeded"],
  ["cached", "cached"],
  ["failed", "failed"],
  ["signaled", "failed"],
  ["timed_out", "limited"],
  ["oom_killed", "limited"],
  ["output_limit", "limited"],
  ["disk_limit", "limited"],
  ["refused", "refused"],
  ["denied", "refused"],
  ["cancelled", "stopped"],
  ["lost", "stopped"],
]);

/** Everything that can become of an item. */
export const STATUSES: readonly string[] = [...OUTCOME_OF.keys()];

/** A status that nobody knows is a failure. */
export function outcomeOf(status: string): Outcome {
  return OUTCOME_OF.get(status) ?? "failed";
}

/** An earlier success counts as one. */
export function isSuccess(status: string): boolean {
  const outcome = outcomeOf(status);
  return outcome === "succeeded" || outcome === "cached";
}
