import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { PATH_RULE, pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const copyFileTool = defineTool({
  name: "copy_file",
  title: "Copy a file or directory",
  description:
    "Copies a file, or a directory with its content. Fails if `to` exists, unless `overwrite` is true. " +
    "Creates missing parent directories of `to`.",
  input: z.strictObject({
    from: pathField(`The file or directory to copy. ${PATH_RULE}`),
    to: pathField("The path of the copy, including its name."),
    overwrite: z.boolean().optional().describe("True: replace an existing file at `to`. Default: false."),
  }),
  uses: "files",
  paths: { from: "read", to: "write" },
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ from, to, overwrite }, hands, signal) {
    const expected = await agreeTo({ operation: "copy", path: from, to, overwrite }, hands, signal);
    const copied = await hands.files.copy(from, to, { overwrite, expected, signal });
    return { text: `Copied ${from} to ${to}.`, data: { from, to, ...copied } };
  },
});
