import { z } from "zod";
import { pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

/** How much of a diff an answer shows. */
const MAX_DIFF_CHARS = 50_000;

export const gitStageTool = defineTool({
  name: "git_stage",
  title: "Stage a commit",
  description:
    "Makes a commit of files on top of a git repository's branch, and shows what it changes. It stays on this machine " +
    "until `git_push`. A file that is not there any more is deleted by the commit. Files that the repository has must have been pulled first.",
  input: z.strictObject({
    repo: z.string().min(1).max(64).describe("Its name."),
    files: z
      .array(pathField("A file, from the root of the repository."))
      .min(1)
      .max(1000)
      .describe("Every file that is to be in the commit; no directories."),
    message: z.string().min(1).max(10_000).describe("What the commit is for."),
  }),
  uses: "git",
  effects: { readOnly: false, destructive: false, idempotent: false, openWorld: false },
  async run(input, hands, signal) {
    const staged = await hands.git.stage(input, signal);
    const { commit, repo, branch, files, fileCount, diff } = staged;
    const cut = diff.length > MAX_DIFF_CHARS;
    const shown = cut ? `${diff.slice(0, MAX_DIFF_CHARS)}\n[the rest of the diff is not shown]` : diff;
    const lines = files.map(({ path, change }) => `  ${change} ${path}`);
    const more = fileCount > files.length ? [`  … and ${fileCount - files.length} more`] : [];
    const text = [`Staged ${commit} for ${branch} of ${repo}; nothing was pushed.`, ...lines, ...more, "", shown];
    return { text: text.join("\n"), data: { ...staged, diff: shown } };
  },
});
