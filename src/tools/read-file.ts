import { z } from "zod";
import { DEFAULT_CHARS, MAX_CHARS } from "../files/read/read-text.ts";
import { PATH_RULE, pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const readFileTool = defineTool({
  name: "read_file",
  title: "Read a file",
  description:
    "Reads a text file, or returns an image for you to see. Read a long file in parts: by lines with `offset` and `limit`, or " +
    "with `max_chars`. If there is more, the answer says how to continue. Other binary files cannot be read; attach them to a " +
    "worker call instead.",
  input: z.strictObject({
    path: pathField(`The file. ${PATH_RULE}`),
    offset: z.int().min(1).optional().describe("The first line to return, counted from 1. Default: 1."),
    column: z
      .int()
      .min(1)
      .optional()
      .describe("The first character of that line to return, counted from 1. Default: 1."),
    limit: z.int().min(1).optional().describe("The maximum number of lines to return."),
    max_chars: z
      .int()
      .min(1)
      .max(MAX_CHARS)
      .optional()
      .describe(`The maximum number of characters to return. Default: ${DEFAULT_CHARS}.`),
  }),
  uses: "files",
  paths: { path: "read" },
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path, offset, column, limit, max_chars }, { files }, signal) {
    const read = await files.read(path, { offset, column, limit, maxChars: max_chars, signal });
    if (read.type === "image") {
      const { mimeType, bytes } = read;
      const image = { mimeType, base64: read.content.toString("base64") };
      return { text: `Image (${mimeType}, ${bytes} bytes).`, data: { type: "image", mimeType, bytes }, image };
    }
    return { text: read.hint === null ? read.content : `${read.content}\n[${read.hint}]`, data: { ...read } };
  },
});
