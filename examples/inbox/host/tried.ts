import type { RunResult } from "../../../src/index.ts";
import { attemptsIn, lastWords } from "./attempts.ts";

/** One document that tried something, and the result. */
export interface Tried {
  readonly document: string;
  readonly status: RunResult["status"];
  /** Sentences. They contain output that a document controls: escape them before you print them to a terminal. */
  readonly lines: readonly string[];
}

/** What the hostile documents tried, as they and Corral report it. `documentOf` maps a run to its document. */
export function triedIn(result: RunResult, documentOf: ReadonlyMap<string, string>): Tried[] {
  return result.calls
    .map((call) => ({ document: documentOf.get(call.run) ?? call.worker, status: call.status, lines: linesOf(call) }))
    .filter(({ lines }) => lines.length > 0)
    .toSorted((a, b) => a.document.localeCompare(b.document));
}

function linesOf(call: RunResult): string[] {
  const lines = attemptsIn(call.stderr).map(({ label, outcome, said }) => {
    const answer = said === "" ? "it got nothing" : said;
    return `${outcome === "held" ? "tried to" : "MANAGED TO"} ${label}: ${answer}`;
  });
  if (call.usage.outOfMemory) lines.push("a process was killed for memory");
  if (call.error !== null) lines.push(call.error.message);
  if (call.status === "failed") lines.push(...[lastWords(call.stderr)].filter((line) => line !== ""));
  return lines;
}
