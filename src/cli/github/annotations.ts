import { randomBytes } from "node:crypto";
import type { CiFinding } from "../../operations/ci/findings.ts";
import { printableLine } from "../../text/visible.ts";
import type { Terminal } from "../terminal/terminal.ts";

/** GitHub shows ten of a step. */
const MAX_ANNOTATIONS = 10;

/**
 * Findings as annotations of a step of GitHub Actions. The runner reads these commands and then no more: it gets another token, which nothing
 * that was printed can know. All output of the jobs must have gone to standard error before, for the runner reads the streams apart.
 */
export function annotate(
  findings: readonly CiFinding[],
  { stderr, commandsToken }: Pick<Terminal, "stderr" | "commandsToken">,
): void {
  if (commandsToken === undefined || findings.length === 0) return;
  const lines = findings.slice(0, MAX_ANNOTATIONS).map(({ file, line, message }) => {
    return `::error file=${property(file)},line=${line},title=corral ci::${data(message)}`;
  });
  const stop = `::stop-commands::${randomBytes(16).toString("hex")}`;
  // What was printed last may lack its line break.
  stderr.write(`\n${[`::${commandsToken}::`, ...lines, stop].join("\n")}\n`);
}

/** As the runner decodes it. A line has no second command: `##[` is one anywhere in a line. */
function data(text: string): string {
  return printableLine(text, 1000).replaceAll("##[", "## [").replaceAll("%", "%25");
}

function property(text: string): string {
  return data(text).replaceAll(":", "%3A").replaceAll(",", "%2C");
}
