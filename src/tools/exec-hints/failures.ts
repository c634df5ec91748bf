/** How a command ended; the fields of a run's result, under the same names. */
export interface ExecOutcome {
  readonly stdout: string;
  readonly stderr: string;
  readonly exitCode: number | null;
  readonly signal: string | null;
  readonly status: string;
}

/** What went wrong, as far as the sandbox has to do with it; the most telling first. */
export type Failure =
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

/** Errors stand at the end of an output. */
const MAX_CHARACTERS = 65_536;

/** What can be recognised in how a command ended and in what it printed, in the order of {@link Failure}. */
export function failuresOf(outcome: ExecOutcome): readonly Failure[] {
  // Many tools print errors to standard output, or are told to with `2>&1`.
  const texts = [outcome.stderr, outcome.stdout].map((text) => text.slice(-MAX_CHARACTERS));
  return SIGNS.flatMap(({ failure, ended, printed }) =>
    ended?.(outcome) || texts.some((text) => printed.some((form) => form.test(text))) ? [failure] : [],
  );
}

interface Sign {
  readonly failure: Failure;
  readonly ended?: (outcome: ExecOutcome) => boolean;
  readonly printed: readonly RegExp[];
}

/**
 * The forms that real programs print; `test/tools/fixtures/exec` holds an example of each. A form is bound to its
 * place in the line or to a code, so that prose which only speaks of such a failure is not taken for one.
 */
const SIGNS: readonly Sign[] = [
  { failure: "time", ended: ({ status }) => status === "timed_out", printed: [] },
  { failure: "output", ended: ({ status }) => status === "output_limit", printed: [] },
  {
    failure: "memory",
    ended: (outcome) => outcome.status === "oom_killed" || (endedItself(outcome) && endedBy(outcome, "SIGKILL", 137)),
    printed: [
      /^Killed$|: line \d+: +\d+ Killed\b/m,
      /^MemoryError\b/m,
      /\bheap out of memory$/m,
      /\bcannot allocate (memory\b|\d+ bytes$)/im,
      /: memory exhausted$/m,
      /^(fatal: )?Out of memory[!,]/m,
      /\bENOMEM\b|\[Errno 12\]|\bstd::bad_alloc\b|java\.lang\.OutOfMemoryError/,
    ],
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
      // Nothing but the worker itself listens there, and a network would not help.
      /\bFailed to connect to (?!localhost\b|127\.|\[?::1\b)\S+ port \d+/,
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

/** False where Corral ended it, which takes the same signals. */
function endedItself({ status }: ExecOutcome): boolean {
  return status === "failed" || status === "signaled";
}

/** A shell tells the death of the command that it ran by signal n as exit code 128+n. */
function endedBy({ signal, exitCode }: ExecOutcome, name: string, code: number): boolean {
  return signal === name || exitCode === code;
}
