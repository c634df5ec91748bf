import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import type { Change, EntryFacts } from "../model/changeset.ts";
import { factsOf } from "../model/raw-name.ts";

/** The entry that has a name now; a link is not followed. `other`: a FIFO, a socket or a device. Null: none. */
export type CurrentEntry = EntryFacts | "other" | null;

export function currentEntry(folder: Descriptor, name: string): CurrentEntry {
  const stats = fs.lstatSync(folder.path(name), { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? null : (factsOf(stats) ?? "other");
}

/** True if `now` is the entry `base`, unchanged. A directory need only be the same one. */
export function isAsItWas(base: EntryFacts, now: CurrentEntry): boolean {
  if (now === null || now === "other" || now.type !== base.type || now.inode !== base.inode) return false;
  if (now.type === "directory") return true;
  return now.size === base.size && now.mtimeNs === base.mtimeNs && now.ctimeNs === base.ctimeNs;
}

/** Why a change would overwrite a change that others made since the run began; null if it would not. */
export function whyConflict({ kind, base }: Pick<Change, "kind" | "base">, now: CurrentEntry): string | null {
  if (kind === "create") return now === null ? null : "another entry of that name was created since the run began";
  if (now === null) return "it was deleted since the run began";
  return base !== null && isAsItWas(base, now) ? null : "it was changed since the run began";
}
