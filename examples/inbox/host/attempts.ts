/** One attempt that a hostile document reports. This is a claim: the check on the host does not rely on it. */
export interface Attempt {
  readonly label: string;
  readonly outcome: "held" | "through";
  /** The first line of what the attempt printed. */
  readonly said: string;
}

/** Reads the lines that the function `attempt` in extract.worker prints. */
export function attemptsIn(stderr: string): Attempt[] {
  return stderr.split("\n").flatMap((line) => {
    const [tag, outcome, label = "", said = ""] = line.split("\t");
    if (tag !== "attempt" || (outcome !== "held" && outcome !== "through")) return [];
    return [{ label, outcome, said }];
  });
}

/** The last line of a worker's standard error that reports no attempt; empty if there is none. */
export function lastWords(stderr: string): string {
  return stderr.split("\n").findLast((line) => line !== "" && !line.startsWith("attempt\t")) ?? "";
}
