import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { ListingDraft } from "../list/listing.ts";
import type { Listing, ListOptions } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import { NOT_DIRECTORY, unfit } from "../model/refusals.ts";
import { type FolderNode, find } from "./node.ts";

export function listFolder(
  root: FolderNode,
  place: Place,
  mounts: readonly VirtualPath[],
  options: ListOptions,
): Listing {
  const draft = new ListingDraft(place.path, options);
  const folder = find("list", root, place);
  if (folder.type !== "directory") throw unfit("list", place.path, NOT_DIRECTORY);
  add(folder, place.path, mounts, draft);
  return draft.finish();
}

function add(folder: FolderNode, path: VirtualPath, mounts: readonly VirtualPath[], draft: ListingDraft): void {
  for (const [name, node] of folder.children) {
    const here = draft.pathOf(path, name);
    if (draft.full) return;
    if (here === null || mounts.includes(here)) continue;
    const size = node.type === "file" ? node.bytes.length : null;
    if (draft.wants(here)) draft.add({ path: here, type: node.type, size });
    if (node.type !== "directory") continue;
    if (draft.depthOf(here) < draft.pattern.depth) add(node, here, mounts, draft);
    else if (draft.pattern.recursive) draft.cut();
  }
}
