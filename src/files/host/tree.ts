import fs from "node:fs";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import type { Deleted } from "../files.ts";
import type { Descriptor } from "./descriptor.ts";
import { entriesOf, type TreeBudget } from "./entries.ts";

/** Looks at a whole tree before anything in it is touched; `check` throws to refuse a file. */
export async function surveyTree(
  folder: Descriptor,
  path: VirtualPath,
  budget: TreeBudget,
  check: (path: VirtualPath, size: number) => void,
  depth = 1,
): Promise<{ files: number; bytes: number }> {
  let files = 0;
  let bytes = 0;
  for await (const { name, type } of entriesOf(folder)) {
    budget.take(depth);
    const here = entryPath(path, name);
    using entry = folder.child(name, type === "directory");
    if (type === "directory") {
      const inner = await surveyTree(entry, here, budget, check, depth + 1);
      files += inner.files;
      bytes += inner.bytes;
      continue;
    }
    files++;
    const { size } = entry.stat();
    if (type !== "file") continue;
    bytes += size;
    check(here, size);
  }
  return { files, bytes };
}

/** Removes all that is in a folder, but not the folder. Links go themselves, and nothing behind them. */
export async function emptyFolder(folder: Descriptor, budget: TreeBudget, depth = 1): Promise<Deleted> {
  let files = 0;
  let folders = 0;
  for await (const { name, type } of entriesOf(folder)) {
    budget.take(depth);
    if (type !== "directory") {
      fs.unlinkSync(folder.path(name));
      files++;
      continue;
    }
    {
      using inner = folder.child(name, true);
      const emptied = await emptyFolder(inner, budget, depth + 1);
      files += emptied.files;
      folders += emptied.folders + 1;
    }
    fs.rmdirSync(folder.path(name));
  }
  return { files, folders };
}

/** For checks and texts only: a name that is not UTF-8 is shown with replacement characters. */
export function entryPath(folder: VirtualPath, name: Buffer): VirtualPath {
  return `${folder === "/" ? "" : folder}/${name.toString("utf8")}` as VirtualPath;
}
