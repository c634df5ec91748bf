import { z } from "zod";
import { defineTool } from "./tool.ts";

export const gitDiscardTool = defineTool({
  name: "git_discard",
  title: "Take back a staged commit",
  description: "Takes back a commit that `git_stage` made and that was not pushed. Files stay as they are.",
  input: z.strictObject({
    commit: z
      .string()
      .regex(/^[0-9a-f]{40}$/)
      .describe("The whole name that `git_stage` gave it."),
  }),
  uses: "git",
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ commit }, hands, signal) {
    const discarded = await hands.git.discard(commit, signal);
    return { text: `Discarded ${commit}; the files are as they were.`, data: { ...discarded } };
  },
});
