import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { contentField, PATH_RULE, pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const editFileTool = defineTool({
  name: "edit_file",
  title: "Edit a file",
  description:
    "Replaces exact text in a text file. Each `old` must occur exactly once in the file, unless `all` is true. Edits are " +
    "applied in order, each to the result of the one before. If one cannot be applied, the file stays unchanged and the " +
    "error names the edit.",
  input: z.strictObject({
    path: pathField(`The file. ${PATH_RULE}`),
    edits: z
      .array(
        z.strictObject({
          old: contentField("The exact text to replace, including white space, with enough context to be unique."),
          new: contentField("The replacement; an empty string deletes the text."),
          all: z.boolean().optional().describe("True: replace every occurrence. Default: false."),
        }),
      )
      .min(1)
      .max(1000)
      .describe("The replacements, applied in this order."),
  }),
  uses: "files",
  paths: { path: "write" },
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  async run({ path, edits }, hands, signal) {
    const expected = await agreeTo({ operation: "edit", path, edits }, hands, signal);
    const { bytes, replacements } = await hands.files.edit(path, edits, { expected, signal });
    const places = replacements === 1 ? "1 place" : `${replacements} places`;
    return { text: `Edited ${path} in ${places}.`, data: { path, bytes, replacements } };
  },
});
