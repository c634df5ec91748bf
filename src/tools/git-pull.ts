import { z } from "zod";
import { pathField } from "./fields.ts";
import type { GitPullAnswer } from "./hands.ts";
import { defineTool } from "./tool.ts";

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
    return { text: textOf(pulled), data: { ...pulled } };
  },
});

function textOf({ repo, branch, at, commit, ...files }: GitPullAnswer): string {
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
