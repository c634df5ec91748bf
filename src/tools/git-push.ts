import { z } from "zod";
import { defineTool } from "./tool.ts";

export const gitPushTool = defineTool({
  name: "git_push",
  title: "Push a staged commit",
  description:
    "Sends a commit that `git_stage` made to its repository. Somebody is always asked first, and is shown what it changes.",
  input: z.strictObject({
    commit: z
      .string()
      .regex(/^[0-9a-f]{40}$/)
      .describe("The whole name that `git_stage` gave it."),
  }),
  uses: "git",
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ commit }, hands, signal) {
    const pushed = await hands.git.push(commit, signal);
    const { repo, branch, fileCount } = pushed;
    return { text: `Pushed ${commit} (${fileCount} files) to ${branch} of ${repo}.`, data: { ...pushed } };
  },
});
