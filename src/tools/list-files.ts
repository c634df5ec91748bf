import { z } from "zod";
import type { ListEntry } from "../files/model/files.ts";
import { pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const listFilesTool = defineTool({
  name: "list_files",
  title: "List files",
  description:
    "Lists the entries of a directory. Start with `/` to see which directories exist. With a glob `pattern` such as " +
    "`**/*.md`, searches the directory and everything below it. The answer says if entries are not shown, and why.",
  input: z.strictObject({
    path: pathField("The directory. Default: the working directory.").optional(),
    pattern: z.string().min(1).max(1000).optional().describe("A glob, relative to `path`."),
    limit: z.int().min(1).max(10_000).default(1000).describe("The maximum number of entries to return."),
  }),
  uses: "files",
  paths: { path: "read" },
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path, pattern, limit }, { files }, signal) {
    const listing = await files.list(path, { pattern, max: limit, signal });
    const lines = listing.entries.map(lineOf);
    const text = lines.length === 0 ? "There are no entries." : lines.join("\n");
    return { text: listing.hint === null ? text : `${text}\n[${listing.hint}]`, data: { ...listing } };
  },
});

function lineOf({ path, type, size }: ListEntry): string {
  if (type === "directory") return `${path}/`;
  return size === null ? `${path} (${type})` : `${path} (${size} bytes)`;
}
