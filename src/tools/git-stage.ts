import { z } from "zod";
import { pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

/** The most of a diff that an answer shows. */
const MAX_DIFF_CHARS = 50_000;

export const gitStageTool = defineTool({
  name: "git_stage",
  title: "Stage a commit",
  description:
    "Creates a commit on top of the repository's branch from files in the repository's directory, and returns its hash and " +
    "its diff. The commit stays on this machine until `git_push`. A listed file that no longer exists is deleted by the " +
    "commit. Pull files that exist in the repository with `git_pull` before you change and stage them.",
  input: z.strictObject({
    repo: z.string().min(1).max(64).describe("The repository's name in the project."),
    files: z
      .array(pathField("A file, relative to the root of the repository."))
      .min(1)
      .max(1000)
      .describe("Every file that the commit changes. Directories are not allowed."),
    message: z.string().min(1).max(10_000).describe("The commit message."),
  }),
  uses: "git",
  paths: {},
  effects: { readOnly: false, destructive: false, idempotent: false, openWorld: false },
  async run(input, hands, signal) {
    const staged = await hands.git.stage(input, signal);
    const { commit, repo, branch, files, fileCount, diff } = staged;
    const cut = diff.length > MAX_DIFF_CHARS;
    const shown = cut ? `${diff.slice(0, MAX_DIFF_CHARS)}\n[The rest of the diff is not shown.]` : diff;
    const lines = files.map(({ path, change }) => `  ${change} ${path}`);
    const more = fileCount > files.length ? [`  … and ${fileCount - files.length} more`] : [];
    const text = [`Staged ${commit} for ${branch} of ${repo}. It is not pushed.`, ...lines, ...more, "", shown];
    return { text: text.join("\n"), data: { ...staged, diff: shown } };
  },
});
