import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { contentField, PATH_RULE, pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const writeFileTool = defineTool({
  name: "write_file",
  title: "Write a file",
  description:
    "Writes a text file and replaces its whole content. Creates the file and missing parent directories. To change a part of " +
    "a file use `edit_file`; to add to its end, `append_file`.",
  input: z.strictObject({
    path: pathField(`The file. ${PATH_RULE}`),
    content: contentField("The complete new content."),
    overwrite: z.boolean().optional().describe("False: fail if the file already exists. Default: true."),
  }),
  uses: "files",
  paths: { path: "write" },
  effects: { readOnly: false, destructive: true, idempotent: true, openWorld: false },
  async run({ path, content, overwrite }, hands, signal) {
    const expected = await agreeTo({ operation: "write", path, content, overwrite }, hands, signal);
    const { bytes, created } = await hands.files.write(path, content, { overwrite, expected, signal });
    return { text: `${created ? "Created" : "Replaced"} ${path} (${bytes} bytes).`, data: { path, bytes, created } };
  },
});
