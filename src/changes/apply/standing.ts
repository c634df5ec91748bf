import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import type { Change, EntryFacts } from "../model/changeset.ts";
import { factsOf } from "../model/raw-name.ts";

/** What stands under a name, links themselves included, without opening it. `other`: a FIFO, a socket or a device. */
export type Standing = EntryFacts | "other" | null;

export function standingAt(folder: Descriptor, name: string): Standing {
  const stats = fs.lstatSync(folder.path(name), { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? null : (factsOf(stats) ?? "other");
}

/** True where `now` is the entry that `base` tells of, not changed since. Of a directory: the very same one. */
export function isAsItWas(base: EntryFacts, now: Standing): boolean {
  if (now === null || now === "other" || now.type !== base.type || now.inode !== base.inode) return false;
  if (now.type === "directory") return true;
  return now.size === base.size && now.mtimeNs === base.mtimeNs && now.ctimeNs === base.ctimeNs;
}

/** Why a change would overwrite what somebody else did since the run began; null: it would not. */
export function whyConflict({ kind, base }: Pick<Change, "kind" | "base">, now: Standing): string | null {
  if (kind === "create") return now === null ? null : "something has that name by now";
  if (now === null) return "it is gone by now";
  return base !== null && isAsItWas(base, now) ? null : "it was changed since the run began";
}
