/** A coarse class of statuses; each has its own colour. */
export type Outcome = "succeeded" | "cached" | "pending" | "failed" | "limited" | "refused" | "stopped";

/** In the order of drawing and listing. */
export const OUTCOMES: readonly { readonly outcome: Outcome; readonly label: string }[] = [
  { outcome: "succeeded", label: "succeeded" },
  { outcome: "cached", label: "cached" },
  { outcome: "pending", label: "pending" },
  { outcome: "failed", label: "failed" },
  { outcome: "limited", label: "over a limit" },
  { outcome: "refused", label: "refused, denied or discarded" },
  { outcome: "stopped", label: "cancelled or lost" },
];

const OUTCOME_OF: ReadonlyMap<string, Outcome> = new Map([
  ["succeeded", "succeeded"],
  ["cached", "cached"],
  ["pending", "pending"],
  ["applied", "succeeded"],
  ["partly_applied", "refused"],
  ["discarded", "refused"],
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

/** All statuses of items. */
export const STATUSES: readonly string[] = [...OUTCOME_OF.keys()];

/** An unknown status counts as a failure. */
export function outcomeOf(status: string): Outcome {
  return OUTCOME_OF.get(status) ?? "failed";
}

/** Its changes wait for a person: neither a success nor a failure. */
export function isPending(status: string): boolean {
  return outcomeOf(status) === "pending";
}

/** A cached success counts as a success, and so do changes that a person applied. */
export function isSuccess(status: string): boolean {
  const outcome = outcomeOf(status);
  return outcome === "succeeded" || outcome === "cached";
}
