import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { TEMPORARY_PREFIX } from "../../files/host/replace-file.ts";
import { hasCode } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import { NOT_OURS } from "./make.ts";
import type { Verdict } from "./verdict.ts";

/** Always the same for one application and change, so that a leftover is found. Workers cannot guess it. */
export function temporaryName(token: string, index: number): string {
  return `${TEMPORARY_PREFIX}${sha256(`${token}:${index}`).slice(0, 32)}`;
}

/** Deletes what has the name of a temporary file, whether it is a leftover or was planted. A link is not followed. */
export function sweep(folder: Descriptor, temporary: string, onStep: () => void): Verdict | null {
  const path = folder.path(temporary);
  const stats = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return null;
  onStep();
  try {
    if (stats.isDirectory()) fs.rmdirSync(path);
    else fs.unlinkSync(path);
  } catch (error) {
    if (hasCode(error, "ENOENT")) return null;
    if (hasCode(error, "ENOTEMPTY", "EISDIR", "ENOTDIR", "EPERM")) return NOT_OURS;
    throw error;
  }
  return null;
}
