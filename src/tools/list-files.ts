import { z } from "zod";
import type { ListEntry } from "../files/model/files.ts";
import { pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const listFilesTool = defineTool({
  name: "list_files",
  title: "List files",
  description:
    "Lists what is in a directory; begin with `/` to see which directories there are. With a glob `pattern` such as `**/*.md` it searches below.",
  input: z.strictObject({
    path: pathField("The directory; the working directory if absent.").optional(),
    pattern: z.string().min(1).max(1000).optional().describe("A glob, relative to the directory."),
    limit: z.int().min(1).max(10_000).default(1000).describe("The most entries wanted."),
  }),
  uses: "files",
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path, pattern, limit }, { files }, signal) {
    const listing = await files.list(path, { pattern, max: limit, signal });
    const lines = listing.entries.map(lineOf);
    const text = lines.length === 0 ? "Nothing is there." : lines.join("\n");
    return { text: listing.hint === null ? text : `${text}\n[${listing.hint}]`, data: { ...listing } };
  },
});

function lineOf({ path, type, size }: ListEntry): string {
  if (type === "directory") return `${path}/`;
  return size === null ? `${path} (${type})` : `${path} (${size} bytes)`;
}
