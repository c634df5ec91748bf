import { z } from "zod";
import { pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

export const fileInfoTool = defineTool({
  name: "file_info",
  title: "Look at a path",
  description: "Tells what a path is, its size, when it was changed, and whether it may be read and written.",
  input: z.strictObject({ path: pathField("The file or directory.") }),
  uses: "files",
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path }, { files }) {
    const { type, size, modifiedMs, path: shown } = await files.stat(path);
    const access = { readable: files.canRead(path), writable: files.canWrite(path) };
    const modified = new Date(modifiedMs).toISOString();
    const rights = access.writable
      ? "readable and writable"
      : access.readable
        ? "read-only"
        : "only its name is visible";
    const bytes = size === null ? "" : `, ${size} bytes`;
    return {
      text: `${shown}: ${type}${bytes}, changed ${modified}, ${rights}.`,
      data: { path: shown, type, size, modified, ...access },
    };
  },
});
