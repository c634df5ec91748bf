import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { contentField, pathField } from "./fields.ts";
import { shownEdits } from "./shown-diff.ts";
import { defineTool } from "./tool.ts";

export const editFileTool = defineTool({
  name: "edit_file",
  title: "Edit a file",
  description:
    "Replaces exact pieces of a text file. Each `old` text must stand in the file exactly once, unless `all` is true. All edits are made, or none.",
  input: z.strictObject({
    path: pathField("The file."),
    edits: z
      .array(
        z.strictObject({
          old: contentField("The exact text to replace, with enough around it to be unique."),
          new: contentField("What stands there afterwards."),
          all: z.boolean().optional().describe("True: replace every place where it stands."),
        }),
      )
      .min(1)
      .max(1000)
      .describe("The replacements, made one after another."),
  }),
  uses: "files",
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  async run({ path, edits }, hands, signal) {
    await agreeTo(hands.files.needs("edit", path), hands, signal, () => shownEdits(path, edits));
    const { bytes, replacements } = await hands.files.edit(path, edits, { signal });
    const places = replacements === 1 ? "1 place" : `${replacements} places`;
    return { text: `Edited ${path} in ${places}.`, data: { path, bytes, replacements } };
  },
});
