import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import type { Content } from "./content.ts";
import { inodeOf, isRoot, type Made, NOT_OURS } from "./made.ts";
import type { Verdict } from "./verdict.ts";

export function makeLink(text: string, content: Content, folder: Descriptor, temporary: string): Made | Verdict {
  fs.symlinkSync(text, folder.path(temporary));
  const link = folder.child(temporary);
  const stats = link.stat();
  if (!stats.isSymbolicLink() || stats.uid !== process.geteuid?.() || stats.nlink !== 1) {
    link[Symbol.dispose]();
    return NOT_OURS;
  }
  // Through the descriptor this is the link itself, whatever has the name by now and wherever it leads.
  if (isRoot()) fs.chownSync(link.path(), content.uid, content.gid);
  return { inode: inodeOf(link), descriptor: link, unsynced: false };
}
