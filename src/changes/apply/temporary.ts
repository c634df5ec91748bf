import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { TEMPORARY_PREFIX } from "../../files/host/replace-file.ts";
import { hasCode } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import { NOT_OURS } from "./make.ts";
import type { Verdict } from "./verdict.ts";

/** The same every time for one application and change, so that a leftover is found; nobody else can tell it beforehand. */
export function temporaryName(token: string, index: number): string {
  return `${TEMPORARY_PREFIX}${sha256(`${token}:${index}`).slice(0, 32)}`;
}

/** Takes away what has the name of a temporary file, be it a leftover or planted; a link goes itself. */
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
