import { readdirSync } from "node:fs";
import { nullFor } from "../platform/errno.ts";

const MARK = /^[0-9a-f]{16}$/;
const MAX_PROJECTS = 10_000;

/** The names of the projects' folders in an inbox; none if it does not exist. */
export function inboxFolders(dir: string): readonly string[] {
  try {
    return readdirSync(dir)
      .filter((name) => MARK.test(name))
      .slice(0, MAX_PROJECTS);
  } catch (error) {
    return nullFor("ENOENT")(error) ?? [];
  }
}
