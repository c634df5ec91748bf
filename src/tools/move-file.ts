import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { PATH_RULE, pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const moveFileTool = defineTool({
  name: "move_file",
  title: "Move a file or directory",
  description:
    "Moves or renames a file, or a directory with its content. Fails if `to` exists, unless `overwrite` is true. " +
    "Creates missing parent directories of `to`.",
  input: z.strictObject({
    from: pathField(`The file or directory to move. ${PATH_RULE}`),
    to: pathField("The new path, including the new name."),
    overwrite: z.boolean().optional().describe("True: replace an existing file at `to`. Default: false."),
  }),
  uses: "files",
  paths: { from: "write", to: "write" },
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  async run({ from, to, overwrite }, hands, signal) {
    const expected = await agreeTo({ operation: "move", path: from, to, overwrite }, hands, signal);
    const moved = await hands.files.move(from, to, { overwrite, expected, signal });
    return { text: `Moved ${from} to ${to}.`, data: { from, to, ...moved } };
  },
});
