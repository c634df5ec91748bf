import { z } from "zod";
import { commitField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const gitDiscardTool = defineTool({
  name: "git_discard",
  title: "Discard a staged commit",
  description:
    "Discards a commit that `git_stage` made and that was not pushed. The files in the worker's directory stay unchanged.",
  input: z.strictObject({ commit: commitField }),
  uses: "git",
  paths: {},
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ commit }, hands, signal) {
    const discarded = await hands.git.discard(commit, signal);
    return { text: `Discarded ${commit}. No file was changed.`, data: { ...discarded } };
  },
});
