import type { Network } from "../../sandbox/network.ts";
import { formatBytes, formatDuration } from "../../sandbox/units.ts";
import type { Failure } from "./failures.ts";

/** What a command's sandbox allows, as the worker knows it: paths are virtual, sizes in bytes. */
export interface ExecFacts {
  readonly readablePaths: readonly string[];
  readonly writablePaths: readonly string[];
  /** Where only some files are shown. */
  readonly constraints: readonly {
    readonly path: string;
    readonly suffixes?: readonly string[] | undefined;
    readonly maxFileBytes?: number | undefined;
  }[];
  readonly workingDir: string;
  readonly network: Network;
  readonly memoryBytes: number;
  /** The most that a command may be given. */
  readonly timeoutMs: number;
  readonly outputBytes: number;
  /** What all commands and tools together may write, which is also the largest that one file may become. */
  readonly diskBytes: number;
}

const MAX_PATHS = 20;
const MAX_CONSTRAINTS = 5;

/** What the worker may do instead, or null where the sandbox is not what stood in the way. */
export function wordHint(failure: Failure, facts: ExecFacts): string | null {
  const readable = `Readable paths: ${listOf(facts.readablePaths)}.`;
  const writable = `Writable paths: ${listOf(facts.writablePaths)}.`;
  switch (failure) {
    case "time":
      return `It was ended at its time limit, with all that it had started. A command of this worker has at most ${formatDuration(facts.timeoutMs)}. Do less at a time.`;
    case "output":
      return `It was ended, for a command of this worker may print at most ${formatBytes(facts.outputBytes)}. Print less, or to a file.`;
    case "memory":
      return `All processes of this worker together may use ${formatBytes(facts.memoryBytes)} of memory. Work on less at a time.`;
    case "file-size":
      return `All that this worker writes may have at most ${formatBytes(facts.diskBytes)} together. Write less, or delete what is no longer needed.`;
    case "space":
      return `The place that was written to is full; /tmp and the home directory are small. ${writable}`;
    case "network":
      return networkHint(facts.network);
    case "command":
      return "That program is not in this worker's image. Use one that is; `command -v NAME` tells which are.";
    case "permission":
      return `No permission can be gained from inside; work with these. ${readable} ${writable}`;
    case "read-only":
      return `That place is read-only for this worker. ${writable}`;
    case "missing":
      return `Only what was granted to this worker exists here. ${readable}${shownOnly(facts)} Relative paths begin at ${facts.workingDir}.`;
  }
}

/** Sentences on what is shown where, each with a blank before it; empty where everything is. */
export function shownOnly({ constraints }: Pick<ExecFacts, "constraints">): string {
  return constraints
    .slice(0, MAX_CONSTRAINTS)
    .map(({ path, suffixes, maxFileBytes }) => {
      const ending = suffixes === undefined ? [] : [`ending in ${suffixes.join(", ")}`];
      const size = maxFileBytes === undefined ? [] : [`of at most ${formatBytes(maxFileBytes)}`];
      return ` In ${path} only files ${[...ending, ...size].join(" and ")} are shown.`;
    })
    .join("");
}

function networkHint(network: Network): string | null {
  if (network === true) return null;
  if (network === false) return "This worker has no network access. Work with the files that it has.";
  return `This worker has network access to these only: ${listOf(network.allow)}.`;
}

function listOf(entries: readonly string[]): string {
  if (entries.length === 0) return "none";
  const more = entries.length - MAX_PATHS;
  return entries.slice(0, MAX_PATHS).join(", ") + (more > 0 ? `, and ${more} more` : "");
}
