import fs from "node:fs";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { type ChangeVerdict, conflict, isVerdict } from "../apply/fitness.ts";
import { isFolderThere } from "../apply/make.ts";
import { currentEntry, isAsItWas, type OpenMounts, openContent, whyConflict } from "../apply/open-mounts.ts";
import { type Change, factsOf } from "../model/changeset.ts";

/** Why a change cannot be applied to the target now; null if it can. */
export function whyNot(change: Change, mounts: OpenMounts): ChangeVerdict | null {
  const slot = mounts.target(change.mount, change.parts);
  if (isVerdict(slot)) return slot;
  using _ = slot;
  const now = currentEntry(slot.folder, slot.name);
  if (isFolderThere(change, now)) return null;
  const reason = whyConflict(change, now);
  return reason === null ? null : conflict(reason);
}

/** Reads both versions of a file that was written. Each must be the one that the changeset records; a missing one is empty. */
export function versionsOf(
  change: Change,
  mounts: OpenMounts,
): { readonly before: Buffer; readonly after: Buffer } | ChangeVerdict {
  const content = openContent(change, mounts);
  if (isVerdict(content)) return content;
  using _ = content;
  const after = contentAt(content.descriptor);
  if (change.kind === "create" || change.base?.type !== "file") return { before: Buffer.alloc(0), after };
  const slot = mounts.target(change.mount, change.parts);
  if (isVerdict(slot)) return slot;
  using __ = slot;
  using named = slot.folder.child(slot.name);
  if (!isAsItWas(change.base, factsOf(fs.fstatSync(named.fd, { bigint: true })) ?? "other"))
    return conflict("it was changed since the run began");
  return { before: contentAt(named), after };
}

/** The name must already be known to be a regular file, since opening a FIFO would block, and to be small: it is read at once. */
export function contentAt(named: Descriptor): Buffer {
  using file = named.reopen(fs.constants.O_RDONLY);
  const bytes = Buffer.alloc(fs.fstatSync(file.fd).size);
  let length = 0;
  for (let read = 1; read > 0 && length < bytes.length; length += read)
    read = fs.readSync(file.fd, bytes, length, bytes.length - length, length);
  return bytes.subarray(0, length);
}
