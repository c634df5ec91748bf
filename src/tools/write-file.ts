import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { contentField, pathField } from "./fields.ts";
import { shownWrite } from "./shown-diff.ts";
import { defineTool } from "./tool.ts";

export const writeFileTool = defineTool({
  name: "write_file",
  title: "Write a file",
  description:
    "Writes a whole text file at once, in place of what it held before. Creates it and its parent directories where they are missing.",
  input: z.strictObject({
    path: pathField("The file."),
    content: contentField("All of its new content."),
    overwrite: z.boolean().optional().describe("False: fail where the file exists already."),
  }),
  uses: "files",
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ path, content, overwrite }, hands, signal) {
    await agreeTo(hands.files.needs("write", path), hands, signal, () => shownWrite(path, content, hands.files));
    const { bytes, created } = await hands.files.write(path, content, { overwrite, signal });
    return { text: `${created ? "Created" : "Replaced"} ${path} (${bytes} bytes).`, data: { path, bytes, created } };
  },
});
