import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { pathField } from "./fields.ts";
import { shownTransfer } from "./shown-diff.ts";
import { defineTool } from "./tool.ts";

export const copyFileTool = defineTool({
  name: "copy_file",
  title: "Copy a file or directory",
  description: "Copies a file or a directory. Nothing is overwritten unless `overwrite` is true.",
  input: z.strictObject({
    from: pathField("What to copy."),
    to: pathField("The path of the copy, name included."),
    overwrite: z.boolean().optional().describe("True: a file that stands there is replaced."),
  }),
  uses: "files",
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ from, to, overwrite }, hands, signal) {
    await agreeTo(hands.files.needs("copy", from, to), hands, signal, () => shownTransfer("copy", from, to));
    const copied = await hands.files.copy(from, to, { overwrite, signal });
    return { text: `Copied ${from} to ${to}.`, data: { from, to, ...copied } };
  },
});
