import fs from "node:fs";
import { BlobRefused, type BlobStore } from "../../blobs/model/blob.ts";
import { fillFile } from "../../blobs/model/file-content.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { hasCode } from "../../platform/errno.ts";
import { currentEntry } from "../apply/current-entry.ts";
import type { Slot } from "../apply/open-mounts.ts";
import type { Change, Changeset, EntryFacts } from "../model/changeset.ts";
import type { WireEntry } from "./document.ts";

/**
 * Makes what a change brings in the directory of its mount's content, and returns the change with the facts of that. What is refused
 * is not made. Nothing in that directory is followed or written over.
 */
export async function fetchContent(
  change: Change,
  source: WireEntry | null,
  { mounts }: Pick<Changeset, "mounts">,
  store: BlobStore,
  signal: AbortSignal | undefined,
): Promise<Change> {
  const mount = mounts[change.mount];
  if (change.refusal !== null || change.kind === "delete" || change.next === null || mount === undefined) return change;
  using slot = slotIn(mount.content, change.parts);
  switch (change.type) {
    case "directory":
      makeFolder(slot.folder, slot.name);
      break;
    case "link":
      fs.symlinkSync(change.linkText ?? "", slot.folder.path(slot.name));
      break;
    default:
      await makeFile(slot, change.next, source, store, signal);
  }
  const made = currentEntry(slot.folder, slot.name);
  if (made === null || made === "other") throw new Error(`the content of ${change.path} disappeared while it was made`);
  const next: EntryFacts = change.type === "directory" ? { ...made, mode: change.next.mode } : made;
  return { ...change, next };
}

async function makeFile(
  { folder, name }: Slot,
  { mode, size }: EntryFacts,
  source: WireEntry | null,
  store: BlobStore,
  signal: AbortSignal | undefined,
): Promise<void> {
  if (source === null || source.digest === null || source.bytes !== size)
    throw new Error("a file that is not refused has no content of the size that was judged");
  const { digest, bytes } = source;
  using file = Descriptor.create(folder.path(name), 0o600);
  const written = await fillFile(file, store.get(digest, bytes, signal));
  if (written !== bytes) throw new BlobRefused("mismatch", digest, `it has ${written} bytes and not ${bytes}`);
  fs.fchmodSync(file.fd, mode & 0o777);
}

/** Directories that are no changes themselves are made on the way. */
function slotIn(root: string, parts: readonly string[]): Slot {
  let folder = Descriptor.name(root, true);
  try {
    for (const name of parts.slice(0, -1)) {
      makeFolder(folder, name);
      const next = folder.child(name, true);
      folder[Symbol.dispose]();
      folder = next;
    }
    const reached = folder;
    return { folder, name: parts.at(-1) ?? "", [Symbol.dispose]: () => reached[Symbol.dispose]() };
  } catch (error) {
    folder[Symbol.dispose]();
    throw error;
  }
}

function makeFolder(folder: Descriptor, name: string): void {
  try {
    fs.mkdirSync(folder.path(name), 0o700);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
  }
}
