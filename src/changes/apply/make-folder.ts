import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import type { EntryFacts } from "../model/changeset.ts";
import type { Content } from "./content.ts";
import { dress, inodeOf, type Made, NOT_OURS } from "./made.ts";
import type { Verdict } from "./verdict.ts";

export function makeFolder(next: EntryFacts, content: Content, parent: Descriptor, temporary: string): Made | Verdict {
  fs.mkdirSync(parent.path(temporary), 0o700);
  const folder = parent.child(temporary, true).reopenFolder();
  const { uid, nlink } = folder.stat();
  if (uid !== process.geteuid?.() || nlink > 2 || fs.readdirSync(folder.path()).length > 0) {
    folder[Symbol.dispose]();
    return NOT_OURS;
  }
  dress(folder, content, next.mode);
  return { inode: inodeOf(folder), descriptor: folder, unsynced: true };
}
