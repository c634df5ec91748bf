import { readFile } from "node:fs/promises";
import { hasCode } from "../../../platform/errno.ts";

/** The file's content as JSON; `undefined` if it is missing or not JSON, since everything recorded here can be found out again. */
export async function readRecord(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    if (error instanceof SyntaxError || hasCode(error, "ENOENT")) return undefined;
    throw error;
  }
}
