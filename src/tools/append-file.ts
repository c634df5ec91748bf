import { z } from "zod";
import { agreeTo } from "./agreement.ts";
import { contentField, pathField } from "./fields.ts";
import { shownAppend } from "./shown-diff.ts";
import { defineTool } from "./tool.ts";

export const appendFileTool = defineTool({
  name: "append_file",
  title: "Append to a file",
  description: "Adds text to the end of a file, and leaves what is there. Creates the file where it is missing.",
  input: z.strictObject({ path: pathField("The file."), content: contentField("What is added.") }),
  uses: "files",
  effects: { readOnly: false, destructive: false, idempotent: false, openWorld: false },
  async run({ path, content }, hands, signal) {
    await agreeTo(hands.files.needs("append", path), hands, signal, () => shownAppend(path, content));
    const { bytes, created } = await hands.files.append(path, content, { signal });
    return { text: `Appended to ${path}, which now has ${bytes} bytes.`, data: { path, bytes, created } };
  },
});
