import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { type RawName, rawChild, rawPath, rawStat } from "../model/raw-name.ts";

/**
 * Where another mount stands inside of a copy, there must be something for it to stand on: an empty directory or file,
 * as it is in the original. Where a link or a file is in the way nothing is made, and no cell can be had.
 */
export function standIn(original: Descriptor, copy: Descriptor, names: readonly RawName[]): void {
  const [name, ...rest] = names;
  if (name === undefined) return;
  const there = rawStat(original, name);
  const isFolder = rest.length > 0 || there === null || there.isDirectory();
  if (rawStat(copy, name) === null) {
    if (isFolder) fs.mkdirSync(rawPath(copy, name), 0o755);
    else fs.closeSync(fs.openSync(rawPath(copy, name), EMPTY_FILE, 0o644));
  }
  if (rest.length === 0 || !there?.isDirectory() || !rawStat(copy, name)?.isDirectory()) return;
  using source = rawChild(original, name, true);
  using inner = rawChild(copy, name, true);
  standIn(source, inner, rest);
}

const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fs.constants;
const EMPTY_FILE = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
