import { z } from "zod";
import type { CommitAnswer, CommittedChange, GitPullAnswer } from "./hands.ts";
import { defineTool, PATH_RULE, pathField, ToolRefusal } from "./tool.ts";

/** How many names of each kind the text lists; the data has all of them. */
const MAX_LISTED = 50;

export const gitPullTool = defineTool({
  name: "git_pull",
  title: "Pull a git repository",
  description:
    "Fetches a git repository and writes its files into the repository's directory. A file that was changed there is kept and " +
    "listed as a conflict, unless `overwrite` is true. No file is deleted. Symbolic links and submodules are skipped.",
  input: z.strictObject({
    repo: z.string().min(1).max(64).describe("The repository's name in the project."),
    paths: z
      .array(pathField("A file or directory, relative to the root of the repository."))
      .min(1)
      .max(1000)
      .optional()
      .describe("The files and directories to write. Default: all."),
    overwrite: z.boolean().default(false).describe("True: also replace files that were changed locally."),
  }),
  uses: "git",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ repo, paths, overwrite }, hands, signal) {
    const pulled = await hands.git.pull({ repo, paths, overwrite }, signal);
    return { text: pulledText(pulled), data: { ...pulled } };
  },
});

function pulledText({ repo, branch, at, commit, ...files }: GitPullAnswer): string {
  if (commit === null) return `The repository ${repo} has no branch ${branch} yet. The first push creates it.`;
  const { created, replaced, unchanged, conflicts, skipped } = files;
  return [
    `${repo} is at ${commit}. In ${at}: ${created.length} created, ${replaced.length} replaced, ${unchanged} unchanged.`,
    ...listed("Created", created),
    ...listed("Replaced", replaced),
    ...listed("Conflicts (changed locally, not replaced)", conflicts),
    ...listed(
      "Skipped",
      skipped.map(({ path, why }) => `${path} (${why})`),
    ),
  ].join("\n");
}

function listed(what: string, names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const more = names.length > MAX_LISTED ? [`… and ${names.length - MAX_LISTED} more`] : [];
  return [`${what}:`, ...[...names.slice(0, MAX_LISTED), ...more].map((name) => `  ${name}`)];
}

/** How many changes the text lists; the data holds all of them. */
const MAX_NAMED = 50;

export const commitChangesTool = defineTool({
  name: "commit_changes",
  title: "Apply staged changes",
  description:
    "Applies the changes made so far in directories that stage their changes, and asks a person for approval if the project " +
    "requires it. Without this call, staged changes are applied when the worker ends. Returns the result of each change: " +
    "applied, refused, conflict, denied or held.",
  input: z.strictObject({}),
  uses: "files",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run(_input, hands, signal) {
    const answer = await hands.commit(signal);
    refuseWithheld(answer);
    return { text: committedText(answer.changes), data: { changes: answer.changes, decision: answer.decision } };
  },
});

/** Throws if no change was applied because a person denied them or did not answer. */
function refuseWithheld({ changes, decision }: CommitAnswer): void {
  if (decision === null || decision.outcome === "approved" || changes.some(({ outcome }) => outcome === "applied"))
    return;
  const timedOut = decision.outcome === "timed_out";
  const why = timedOut ? "no answer came in time" : `approval was denied: ${decision.reason}`;
  throw new ToolRefusal(
    timedOut ? "APPROVAL_TIMED_OUT" : "APPROVAL_DENIED",
    `No change was applied: applying needs approval, and ${why}. Your changes are still staged.`,
    { changes },
  );
}

function committedText(changes: readonly CommittedChange[]): string {
  if (changes.length === 0) return "There are no staged changes.";
  const applied = changes.filter(({ outcome }) => outcome === "applied").length;
  const lines = changes
    .slice(0, MAX_NAMED)
    .map(({ path, kind, outcome, reason }) => `${outcome} ${kind} ${path}${reason === null ? "" : `: ${reason}`}`);
  const rest = changes.length > MAX_NAMED ? [`and ${changes.length - MAX_NAMED} more`] : [];
  return [`Applied ${applied} of ${changes.length} changes.`, ...lines, ...rest].join("\n");
}

const NEW_CONTAINER =
  "The next command runs in a new container that shows it: what is in /tmp, the home directory and running programs is lost with it.";

export const requestAccessTool = defineTool({
  name: "request_access",
  title: "Ask for access to a directory or a host",
  description:
    "Asks the user for access to a directory, or to a host of the network, that you do not have. It lasts until the end of " +
    "this run. Use it before a command or another worker needs the directory or the host; file tools ask by themselves. If a directory is " +
    "granted, the next command runs in a new container that shows it; a host can be reached at once. If not, the answer says why and " +
    "what can be asked for instead. Give `path`, or `host`.",
  input: z
    .strictObject({
      path: pathField(`The directory, or a file in it. ${PATH_RULE}`).optional(),
      mode: z.enum(["read", "write"]).default("read").describe("Writing includes reading. Default: read."),
      host: z.string().min(1).max(300).optional().describe("The host and its port, such as `api.example.org:443`."),
      reason: z.string().min(1).max(500).optional().describe("With `host`: what it is for. The user reads it."),
    })
    .refine(({ path, host }) => (path === undefined) !== (host === undefined), "give either `path` or `host`"),
  uses: "access",
  paths: { path: "read" },
  effects: { readOnly: false, destructive: false, idempotent: true, openWorld: false },
  async run({ path, mode, host, reason }, hands, signal) {
    const answer = await hands.access(path === undefined ? { host: host ?? "", reason } : { path, mode }, signal);
    if (!answer.granted) throw new ToolRefusal(answer.code, answer.message);
    const what = "host" in answer ? answer.host : answer.path;
    if (answer.scope === "had") {
      return { text: `You already have it: ${what}.`, data: { ...dataOf(answer, mode), scope: answer.scope } };
    }
    const text =
      "host" in answer
        ? `Reaching '${what}' was granted until the end of this run.`
        : `${mode === "write" ? "Writing to" : "Reading"} '${what}' was granted until the end of this run. ${NEW_CONTAINER}`;
    return { text, data: { ...dataOf(answer, mode), scope: answer.scope } };
  },
});

function dataOf(answer: { readonly host: string } | { readonly path: string }, mode: string) {
  return "host" in answer ? { host: answer.host } : { path: answer.path, mode };
}
