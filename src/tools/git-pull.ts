import { z } from "zod";
import { pathField } from "./fields.ts";
import type { GitPullAnswer } from "./hands.ts";
import { defineTool } from "./tool.ts";

/** How many names of each kind the text tells; the data has all of them. */
const MAX_TOLD = 50;

export const gitPullTool = defineTool({
  name: "git_pull",
  title: "Pull a git repository",
  description:
    "Fetches a git repository and writes its files into the directory that mirrors it. A file with changes of its own is " +
    "left as it is and told of, unless `overwrite` is true. Nothing is deleted. Links and nested repositories are left out.",
  input: z.strictObject({
    repo: z.string().min(1).max(64).describe("Its name."),
    paths: z
      .array(pathField("A file or directory, from the root of the repository."))
      .min(1)
      .max(1000)
      .optional()
      .describe("Only these; everything if absent."),
    overwrite: z.boolean().default(false).describe("True: files with changes of their own are replaced as well."),
  }),
  uses: "git",
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ repo, paths, overwrite }, hands, signal) {
    const pulled = await hands.git.pull({ repo, paths, overwrite }, signal);
    return { text: textOf(pulled), data: { ...pulled } };
  },
});

function textOf({ repo, branch, at, commit, ...files }: GitPullAnswer): string {
  if (commit === null) return `The repository ${repo} has no branch ${branch} yet: the first push makes it.`;
  const { created, replaced, unchanged, conflicts, skipped } = files;
  return [
    `${repo} is at ${commit}. In ${at}: ${created.length} created, ${replaced.length} replaced, ${unchanged} as they were.`,
    ...listed("Created", created),
    ...listed("Replaced", replaced),
    ...listed("Not replaced, for they have changes of their own", conflicts),
    ...listed(
      "Left out",
      skipped.map(({ path, why }) => `${path} (${why})`),
    ),
  ].join("\n");
}

function listed(what: string, names: readonly string[]): string[] {
  if (names.length === 0) return [];
  const more = names.length > MAX_TOLD ? [`… and ${names.length - MAX_TOLD} more`] : [];
  return [`${what}:`, ...[...names.slice(0, MAX_TOLD), ...more].map((name) => `  ${name}`)];
}
