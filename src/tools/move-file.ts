import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { pathField } from "./fields.ts";
import { shownTransfer } from "./shown-diff.ts";
import { defineTool } from "./tool.ts";

export const moveFileTool = defineTool({
  name: "move_file",
  title: "Move a file or directory",
  description: "Moves or renames a file or a directory. Nothing is overwritten unless `overwrite` is true.",
  input: z.strictObject({
    from: pathField("What to move."),
    to: pathField("Its new path, name included."),
    overwrite: z.boolean().optional().describe("True: a file that stands there is replaced."),
  }),
  uses: "files",
  effects: { readOnly: false, destructive: true, idempotent: false, openWorld: false },
  async run({ from, to, overwrite }, hands, signal) {
    await agreeTo(hands.files.needs("move", from, to), hands, signal, () => shownTransfer("rename", from, to));
    const moved = await hands.files.move(from, to, { overwrite, signal });
    return { text: `Moved ${from} to ${to}.`, data: { from, to, ...moved } };
  },
});
