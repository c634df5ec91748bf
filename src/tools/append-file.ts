import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { contentField, PATH_RULE, pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const appendFileTool = defineTool({
  name: "append_file",
  title: "Append to a file",
  description:
    "Appends text to the end of a file and keeps its existing content. Creates the file if it does not exist. " +
    "No line break is added: begin `content` with one if the text must start on a new line.",
  input: z.strictObject({
    path: pathField(`The file. ${PATH_RULE}`),
    content: contentField("The text to append."),
  }),
  uses: "files",
  paths: { path: "write" },
  effects: { readOnly: false, destructive: false, idempotent: false, openWorld: false },
  async run({ path, content }, hands, signal) {
    const expected = await agreeTo({ operation: "append", path, content }, hands, signal);
    const { bytes, created } = await hands.files.append(path, content, { expected, signal });
    return { text: `Appended to ${path}; its size is now ${bytes} bytes.`, data: { path, bytes, created } };
  },
});
