import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { PATH_RULE, pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const deleteFileTool = defineTool({
  name: "delete_file",
  title: "Delete a file or directory",
  description:
    "Deletes a file, a symbolic link (never its target), or an empty directory. With `recursive`, deletes a directory and " +
    "everything in it.",
  input: z.strictObject({
    path: pathField(`The file, link or directory to delete. ${PATH_RULE}`),
    recursive: z.boolean().optional().describe("True: delete a directory with its content. Default: false."),
  }),
  uses: "files",
  paths: { path: "write" },
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ path, recursive }, hands, signal) {
    const expected = await agreeTo({ operation: "delete", path, recursive }, hands, signal);
    const deleted = await hands.files.delete(path, { recursive, expected, signal });
    return {
      text: `Deleted ${path} (${deleted.files} files, ${deleted.folders} directories).`,
      data: { path, ...deleted },
    };
  },
});
