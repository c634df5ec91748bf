import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { ListingDraft } from "../list/listing.ts";
import type { Listing, ListOptions } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import { NOT_DIRECTORY, unfit } from "../model/refusals.ts";
import type { Descriptor } from "./descriptor.ts";
import type { Root } from "./roots.ts";
import { type Entry, entriesOf, entryPath } from "./tree.ts";
import { walk } from "./walk.ts";

export async function listPlace(root: Root, place: Place, options: ListOptions): Promise<Listing> {
  const draft = new ListingDraft(place.path, options);
  using found = walk({ operation: "list", root, parts: place.parts, links: "follow", asked: place.path });
  if (found.type !== "directory") throw unfit("list", place.path, NOT_DIRECTORY);
  await addFolder(root, found.descriptor, { shown: place.path, real: found.path }, draft, options.signal);
  return draft.finish();
}

/** `real` differs from `shown` below a link that was followed. Mounts hide entries by their real place. */
interface FolderPaths {
  readonly shown: VirtualPath;
  readonly real: VirtualPath;
}

async function addFolder(
  root: Root,
  folder: Descriptor,
  paths: FolderPaths,
  draft: ListingDraft,
  signal: AbortSignal | undefined,
): Promise<void> {
  for await (const entry of entriesOf(folder)) {
    signal?.throwIfAborted();
    const path = draft.pathOf(paths.shown, entry.name);
    if (draft.full) return;
    if (path === null) continue;
    const real = entryPath(paths.real, entry.name);
    if (root.hidden.includes(real)) continue;
    if (draft.wants(path)) draft.add({ path, type: entry.type, size: sizeOf(folder, entry) });
    if (entry.type === "directory") await addInner(root, folder, entry, { shown: path, real }, draft, signal);
    if (draft.full) return;
  }
}

async function addInner(
  root: Root,
  folder: Descriptor,
  entry: Entry,
  paths: FolderPaths,
  draft: ListingDraft,
  signal: AbortSignal | undefined,
): Promise<void> {
  const depth = draft.depthOf(paths.shown);
  if (depth >= draft.pattern.depth) {
    if (draft.pattern.recursive) draft.cut();
    return;
  }
  try {
    using inner = folder.child(entry.name, true);
    await addFolder(root, inner, paths, draft, signal);
  } catch (error) {
    // A folder that disappeared or may not be read is listed without its entries.
    if (!(error instanceof Error && "syscall" in error)) throw error;
    draft.unread();
  }
}

function sizeOf(folder: Descriptor, entry: Entry): number | null {
  if (entry.type !== "file") return null;
  try {
    using named = folder.child(entry.name);
    return named.stat().size;
  } catch {
    // It was deleted in the meantime.
    return null;
  }
}
