import { isUtf8 } from "node:buffer";
import fs from "node:fs";
import { blobOf } from "../../blobs/model/file-content.ts";
import { codeOf } from "../../platform/errno.ts";
import { checkRead } from "../../sandbox/access.ts";
import { type CurrentEntry, currentEntry, isAsItWas } from "../apply/current-entry.ts";
import type { OpenMounts, Slot } from "../apply/open-mounts.ts";
import { isVerdict } from "../apply/verdict.ts";
import type { EntryFacts } from "../model/changeset.ts";
import { textOf } from "../model/raw-name.ts";
import type { WireChange, WireEntry } from "./document.ts";
import type { HomeMount } from "./home-mounts.ts";

/** What is at the place of a change on this machine. */
export interface AtHome {
  /** The facts of now, if what is there is what the run began with; else facts that nothing has, so that it is a conflict. */
  readonly base: EntryFacts | null;
  /** True if a file has that name that the item may not read: on this machine its view would not show it. */
  readonly overHidden: boolean;
}

/** Compares by content: inodes and times of the other machine say nothing here. */
export async function baseAtHome(
  { names, kind, base }: WireChange,
  place: HomeMount,
  mount: number,
  mounts: OpenMounts,
  signal: AbortSignal | undefined,
): Promise<AtHome> {
  const none = { base: base === null ? null : nothing(base), overHidden: false };
  const parts = names.flatMap((name) => textOf(name) ?? []);
  // A name that is not UTF-8 is refused.
  if (parts.length !== names.length) return none;
  const slot = mounts.target(mount, parts);
  if (isVerdict(slot)) return none;
  using _ = slot;
  const now = currentEntry(slot.folder, slot.name);
  if (now === null || now === "other") return none;
  const path = place.pathOf(names);
  const isHidden =
    now.type === "file" && path !== null && checkRead({ mounts: [place.mount] }, path, { size: now.size }) !== null;
  if (isHidden) return { ...none, overHidden: kind === "create" };
  const isSame = base !== null && (await isSameEntry(slot, now, base, kind, signal));
  return isSame ? { base: now, overHidden: false } : none;
}

/** No entry has it: no file system numbers its files from 0. */
function nothing({ type, mode, bytes }: WireEntry): EntryFacts {
  return { type, mode, size: bytes, inode: "0", mtimeNs: "0", ctimeNs: "0" };
}

async function isSameEntry(
  slot: Slot,
  now: EntryFacts,
  base: WireEntry,
  kind: WireChange["kind"],
  signal: AbortSignal | undefined,
): Promise<boolean> {
  if (now.type !== base.type) return false;
  const hasSameMode = (now.mode & 0o777) === (base.mode & 0o777);
  switch (now.type) {
    case "directory":
      return kind === "delete" || hasSameMode;
    case "link":
      return base.target !== null && targetOf(slot) === base.target;
    default:
      return hasSameMode && now.size === base.bytes && (await isSameContent(slot, now, base, signal));
  }
}

async function isSameContent(
  { folder, name }: Slot,
  now: EntryFacts,
  { digest }: WireEntry,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  try {
    using named = folder.child(name);
    if (!named.stat().isFile()) return false;
    using file = named.reopen(fs.constants.O_RDONLY);
    const blob = await blobOf(file, signal);
    const after: CurrentEntry = currentEntry(folder, name);
    return blob !== null && blob.digest === digest && isAsItWas(now, after);
  } catch (error) {
    // What cannot be compared is not the same.
    if (codeOf(error) === undefined) throw error;
    return false;
  }
}

function targetOf({ folder, name }: Slot): string | null {
  try {
    const bytes = fs.readlinkSync(folder.path(name), { encoding: "buffer" });
    return isUtf8(bytes) ? bytes.toString() : null;
  } catch (error) {
    if (codeOf(error) === undefined) throw error;
    return null;
  }
}
