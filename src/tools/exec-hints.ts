import { type NotShown, notShownText } from "../files/model/files.ts";
import { allowedText } from "../sandbox/network/judge.ts";
import type { Network } from "../sandbox/network/rule.ts";
import { ROOTED_BASE } from "../sandbox/virtual-path.ts";
import { formatBytes, formatDuration } from "../text/amounts.ts";
import type { ExecToolAnswer } from "./hands.ts";

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
function isCovered(failure: SandboxFailure, all: readonly SandboxFailure[]): boolean {
  const other = ({ "read-only": "permission", missing: "command" } as const)[failure as "read-only" | "missing"];
  return other !== undefined && all.includes(other);
}

/** What a command's sandbox allows. Paths are virtual, sizes are in bytes. */
export interface ExecFacts {
  readonly readablePaths: readonly string[];
  readonly writablePaths: readonly string[];
  /** Directories in which only some files are visible. */
  readonly constraints: readonly {
    readonly path: string;
    readonly suffixes?: readonly string[] | undefined;
    readonly maxFileBytes?: number | undefined;
    /** What is not shown there, counted. Absent: not counted. */
    readonly notShown?: NotShown | undefined;
  }[];
  readonly workingDir: string;
  /** True: what tools name `/a` is below `/project` for commands. */
  readonly rooted: boolean;
  /** True: the worker can ask for a directory that it does not have. */
  readonly mayAsk: boolean;
  readonly network: Network;
  readonly memoryBytes: number;
  /** The longest time limit that a command may have. */
  readonly timeoutMs: number;
  readonly outputBytes: number;
  /** The most that all commands and tools together may write, and so also the maximum size of one file. */
  readonly diskBytes: number;
}

const MAX_PATHS = 20;
const MAX_CONSTRAINTS = 5;

/** The cause and what the worker can do instead; null if the sandbox is not the cause. */
function wordHint(failure: SandboxFailure, facts: ExecFacts): string | null {
  const readable = `Readable paths: ${listOf(facts.readablePaths)}.`;
  const writable = `Writable paths: ${listOf(facts.writablePaths)}.`;
  const others = (mode: "read" | "write"): string =>
    facts.mayAsk
      ? ` The user can be asked for another directory with request_access {"path": "/DIRECTORY", "mode": "${mode}"}.`
      : "";
  const named = facts.rooted ? ` What the file tools name /a is ${ROOTED_BASE}/a for commands.` : "";
  switch (failure) {
    case "time":
      return `The command reached its time limit and was killed with all that it started. A command of this worker may run for at most ${formatDuration(facts.timeoutMs)}. Split the work into shorter commands.`;
    case "output":
      return `The command was killed because it printed more than ${formatBytes(facts.outputBytes)}, the limit of this worker. Print less, or write the output to a file.`;
    case "memory":
      return `The command ran out of memory. All processes of this worker together may use ${formatBytes(facts.memoryBytes)}. Process less data at a time.`;
    case "file-size":
      return `The command reached the disk limit. The files of this worker together may have at most ${formatBytes(facts.diskBytes)}. Write less, or delete files that you no longer need.`;
    case "space":
      return `No space is left in that directory; /tmp and the home directory are small. ${writable}`;
    case "network":
      return networkHint(facts.network);
    case "command":
      return "That program is not installed in this worker's image. Use another one; `command -v NAME` shows if a program exists.";
    case "permission":
      return `Permission denied. You cannot get more permissions from inside the container. ${readable} ${writable}${others("write")}`;
    case "read-only":
      return `That path is read-only for this worker. ${writable}${others("write")}`;
    case "missing":
      return `That path does not exist: this worker sees only the paths that were granted to it. ${readable}${shownOnly(facts)} Relative paths start at ${facts.workingDir}.${named}${others("read")}`;
  }
}

/** One sentence for each directory with restrictions, each after a space; empty if there are none. */
export function shownOnly({ constraints }: Pick<ExecFacts, "constraints">): string {
  return constraints
    .slice(0, MAX_CONSTRAINTS)
    .map(({ path, suffixes, maxFileBytes, notShown }) => {
      const ending = suffixes === undefined ? [] : [`ending in ${suffixes.join(", ")}`];
      const size = maxFileBytes === undefined ? [] : [`of at most ${formatBytes(maxFileBytes)}`];
      const counts = notShown === undefined ? "" : notShownText(notShown);
      return ` In ${path} only files ${[...ending, ...size].join(" and ")} are visible.${counts === "" ? "" : ` ${counts}`}`;
    })
    .join("");
}

function networkHint(network: Network): string | null {
  if (network === true) return null;
  if (network === false) return "This worker has no network access. Use the files that it already has.";
  const { dynamic } = network;
  const allowed = network.allow.length === 0 ? "no host yet" : `only these hosts: ${listOf(allowedText(network))}`;
  const more =
    dynamic === undefined
      ? ""
      : ` The user can be asked for others with request_access {"host": "NAME:PORT"}${dynamic.within.length === 0 ? "" : `, among: ${listOf(dynamic.within)}`}.`;
  return `This worker reaches ${allowed}.${more}`;
}

function listOf(entries: readonly string[]): string {
  if (entries.length === 0) return "none";
  const more = entries.length - MAX_PATHS;
  return entries.slice(0, MAX_PATHS).join(", ") + (more > 0 ? `, and ${more} more` : "");
}

/** How a command ended. The fields have the names that they have in a run's result. */
export type ExecOutcome = Pick<ExecToolAnswer, "stdout" | "stderr" | "exitCode" | "signal" | "status">;

/** The failures that a sandbox can cause, the most specific first. */
type SandboxFailure =
  | "time"
  | "output"
  | "memory"
  | "file-size"
  | "space"
  | "network"
  | "command"
  | "permission"
  | "read-only"
  | "missing";

/** Only the end of each output is searched, because programs print errors last. */
const MAX_CHARACTERS = 65_536;

/** The failures recognised from how a command ended and from its output, in the order of {@link SandboxFailure}. */
function failuresOf(outcome: ExecOutcome): readonly SandboxFailure[] {
  // Many programs print errors to standard output, or are run with `2>&1`.
  const texts = [outcome.stderr, outcome.stdout].map((text) => text.slice(-MAX_CHARACTERS));
  return SIGNS.flatMap(({ failure, ended, printed }) =>
    ended?.(outcome) || texts.some((text) => printed.some((form) => form.test(text))) ? [failure] : [],
  );
}

interface Sign {
  readonly failure: SandboxFailure;
  readonly ended?: (outcome: ExecOutcome) => boolean;
  readonly printed: readonly RegExp[];
}

/**
 * The messages that real programs print; `test/tools/fixtures/exec` has an example of each. A pattern is anchored to its
 * place in the line or to an error code, so that text which only mentions such an error does not match.
 */
const SIGNS: readonly Sign[] = [
  { failure: "time", ended: ({ status }) => status === "timed_out", printed: [] },
  { failure: "output", ended: ({ status }) => status === "output_limit", printed: [] },
  {
    failure: "memory",
    // A program may also print such an error for a limit of its own, and any process may be killed for another reason.
    ended: ({ status }) => status === "oom_killed",
    printed: [],
  },
  {
    failure: "file-size",
    ended: (outcome) => outcome.status === "disk_limit" || endedBy(outcome, "SIGXFSZ", 153),
    printed: [/File size limit exceeded/, /: File too large$/m, /\bEFBIG\b|\[Errno 27\]/],
  },
  {
    failure: "space",
    printed: [
      /: (No space left on device|Disk quota exceeded)\.?$/m,
      /\bENOSPC\b|\bEDQUOT\b|\[Errno (28|122)\]/,
      /: Wrote only \d+ of \d+ bytes$/m,
    ],
  },
  {
    failure: "network",
    printed: [
      /\b(connect|failed|\)|\d): (Network is unreachable|No route to host)\.?$/im,
      /\bENETUNREACH\b|\bEHOSTUNREACH\b|\[Errno (101|113)\]/,
      /\bEAI_AGAIN\b|\bENOTFOUND\b|\bgaierror\b|\[Errno -[235]\]/,
      /(^|[:,] |\bfailed: )(Temporary failure in name resolution|Name or service not known)\b/m,
      /\bTemporary failure resolving '/,
      /\bCould not resolve (host|hostname|proxy)\b/i,
      /\bfailed to lookup address information\b|\bdial tcp: lookup /,
      /^wget: (bad address '|unable to resolve host address )/m,
      // Only the worker itself can listen on localhost, so network access would not help there.
      /\bFailed to connect to (?!localhost\b|127\.|\[?::1\b)\S+ port \d+/,
      // The proxy of the cell, and the answer of a host that is looked into.
      /\b(CONNECT tunnel failed, response|Received HTTP code|Tunnel connection failed:|Proxy response \() ?403\b/i,
      /^\S+:\d+ is not allowed\. Allowed: /m,
      /^ERROR: Could not find a version that satisfies the requirement .* \(from versions: none\)$/m,
    ],
  },
  {
    failure: "command",
    ended: (outcome) => outcome.exitCode === 127,
    printed: [
      /^\S+: (line )?\d+: [^:\n]+: (command )?not found$/m,
      /^\S*sh: [^:\n]+: (command )?not found$/m,
      /^env: .*: No such file or directory$/m,
      /^git: '.*' is not a git command\./m,
      /\bspawn \S+ ENOENT\b/,
      /\bin _execute_child\n(.*\n){1,4}FileNotFoundError: /,
      /\bexecutable file not found in \$PATH\b/,
    ],
  },
  {
    failure: "permission",
    printed: [/(^|: )Permission denied\.?$/m, /\bEACCES\b|\[Errno 13\]/],
  },
  {
    failure: "read-only",
    printed: [/: Read-only file system\.?$/m, /\bEROFS\b|\[Errno 30\]/],
  },
  {
    failure: "missing",
    printed: [/: No such file( or directory)?\.?$/m, /\bENOENT\b|\[Errno 2\]/, /: cd: can't cd to /],
  },
];

/** A shell reports that signal n ended its command as exit code 128+n. */
function endedBy({ signal, exitCode }: ExecOutcome, name: string, code: number): boolean {
  return signal === name || exitCode === code;
}
