import { z } from "zod";
import { defineTool } from "./tool.ts";

export const gitPushTool = defineTool({
  name: "git_push",
  title: "Push a staged commit",
  description:
    "Pushes a commit that `git_stage` made to its repository. A person must approve every push and sees its changes first. " +
    "If approval is denied, the commit stays staged.",
  input: z.strictObject({
    commit: z
      .string()
      .regex(/^[0-9a-f]{40}$/)
      .describe("The commit's full hash, as returned by `git_stage`."),
  }),
  uses: "git",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ commit }, hands, signal) {
    const pushed = await hands.git.push(commit, signal);
    const { repo, branch, fileCount } = pushed;
    return { text: `Pushed ${commit} (${fileCount} files) to ${branch} of ${repo}.`, data: { ...pushed } };
  },
});
