import { z } from "zod";
import { DEFAULT_CHARS, MAX_CHARS } from "../files/read/read-text.ts";
import { pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const readFileTool = defineTool({
  name: "read_file",
  title: "Read a file",
  description:
    "Reads a text file, or looks at an image. A long file is read in pieces: by lines with `offset` and `limit`, or by " +
    "`max_chars`; the answer says how to go on. Other binary files are not read; hand them to a worker as an attachment.",
  input: z.strictObject({
    path: pathField("The file."),
    offset: z.int().min(1).optional().describe("The first line wanted, from 1."),
    column: z.int().min(1).optional().describe("Where to begin in that line, in characters from 1."),
    limit: z.int().min(1).optional().describe("The most lines wanted."),
    max_chars: z
      .int()
      .min(1)
      .max(MAX_CHARS)
      .optional()
      .describe(`The most characters wanted; ${DEFAULT_CHARS} if absent.`),
  }),
  uses: "files",
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path, offset, column, limit, max_chars }, { files }, signal) {
    const read = await files.read(path, { offset, column, limit, maxChars: max_chars, signal });
    if (read.type === "image") {
      const { mimeType, bytes } = read;
      const image = { mimeType, base64: read.content.toString("base64") };
      return { text: `An image (${mimeType}, ${bytes} bytes).`, data: { type: "image", mimeType, bytes }, image };
    }
    return { text: read.hint === null ? read.content : `${read.content}\n[${read.hint}]`, data: { ...read } };
  },
});
