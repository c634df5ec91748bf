import type { ExecToolAnswer } from "../hands.ts";

/** How a command ended. The fields have the names that they have in a run's result. */
export type ExecOutcome = Pick<ExecToolAnswer, "stdout" | "stderr" | "exitCode" | "signal" | "status">;

/** The failures that a sandbox can cause, the most specific first. */
export type SandboxFailure =
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
export function failuresOf(outcome: ExecOutcome): readonly SandboxFailure[] {
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
