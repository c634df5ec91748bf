import { z } from "zod";
import { commitField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const gitPushTool = defineTool({
  name: "git_push",
  title: "Push a staged commit",
  description:
    "Pushes a commit that `git_stage` made to its repository. A person must approve every push and sees its changes first. " +
    "If approval is denied, the commit stays staged.",
  input: z.strictObject({ commit: commitField }),
  uses: "git",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: true },
  async run({ commit }, hands, signal) {
    const pushed = await hands.git.push(commit, signal);
    const { repo, branch, fileCount } = pushed;
    return { text: `Pushed ${commit} (${fileCount} files) to ${branch} of ${repo}.`, data: { ...pushed } };
  },
});
