import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const deleteFileTool = defineTool({
  name: "delete_file",
  title: "Delete a file or directory",
  description: "Deletes a file, a link, or an empty directory; with `recursive`, a directory and all that is in it.",
  input: z.strictObject({
    path: pathField("What to delete."),
    recursive: z.boolean().optional().describe("True: a directory goes with its content."),
  }),
  uses: "files",
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ path, recursive }, hands, signal) {
    const shown = () => (recursive ? { diff: `delete ${path} with all that is in it` } : {});
    await agreeTo(hands.files.needs("delete", path), hands, signal, shown);
    const deleted = await hands.files.delete(path, { recursive, signal });
    return {
      text: `Deleted ${path} (${deleted.files} files, ${deleted.folders} directories).`,
      data: { path, ...deleted },
    };
  },
});
