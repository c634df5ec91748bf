import { z } from "zod";
import { PATH_RULE, pathField } from "./fields.ts";
import { defineTool } from "./tool.ts";

const RIGHTS = {
  "true-true": "readable and writable",
  "true-false": "read-only",
  "false-true": "writable, but not readable",
  "false-false": "only its name is visible",
} as const;

export const fileInfoTool = defineTool({
  name: "file_info",
  title: "Get file information",
  description:
    "Returns the type of a path (file, directory, link or other), its size, the time of its last change, and if it can be " +
    "read and written.",
  input: z.strictObject({ path: pathField(`The file or directory. ${PATH_RULE}`) }),
  uses: "files",
  paths: { path: "read" },
  effects: { readOnly: true, destructive: false, idempotent: true, openWorld: false },
  async run({ path }, { files }) {
    const { type, size, modifiedMs, path: shown, readable, writable } = await files.inspect(path);
    const access = { readable, writable };
    const modified = new Date(modifiedMs).toISOString();
    const rights = RIGHTS[`${readable}-${writable}`];
    const bytes = size === null ? "" : `, ${size} bytes`;
    return {
      text: `${shown}: ${type}${bytes}, changed ${modified}, ${rights}.`,
      data: { path: shown, type, size, modified, ...access },
    };
  },
});
