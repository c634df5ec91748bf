import fs from "node:fs";
import {
  type Guard,
  type Looked,
  type LookOptions,
  MAX_EDIT_BYTES,
  type Place,
  type ReadOptions,
  type ReadResult,
  type WholeOptions,
  whyNotRegular,
} from "../model/files.ts";
import { CHANGED, type FileOperation, tooLargeText, unfit } from "../model/refusals.ts";
import { readAll, readContent } from "../read/read-text.ts";
import { contentOf } from "./content.ts";
import type { Descriptor, Root } from "./descriptor.ts";
import { lookUp } from "./new-files.ts";
import { entriesOf, entryPath, TreeBudget } from "./tree.ts";
import { type Found, typeOf, walk } from "./walk.ts";

type Entry = NonNullable<Looked["entries"]>[number];

export async function lookAtPlace(root: Root, place: Place, options: LookOptions): Promise<Looked> {
  const { operation, links, inside, signal } = options;
  using found = walk({ operation, root, parts: place.parts, links, asked: place.path });
  const entry = entryOf(found.path, found.stats);
  if (inside && found.type === "directory") {
    const entries: Entry[] = [];
    await addEntries(found.descriptor, found.path, new TreeBudget(place.path, operation, signal), entries);
    return { ...entry, content: null, entries };
  }
  if (!inside || found.type !== "file" || found.stats.size > MAX_EDIT_BYTES)
    return { ...entry, content: null, entries: null };
  using file = openFoundFile(operation, place, found);
  const source = contentOf(file);
  const content = await readAll(source);
  if (source.changed() || versionOf(file.stat()) !== entry.version) throw unfit(operation, place.path, BEING_CHANGED);
  return { ...entry, content, entries: null };
}

const BEING_CHANGED = "another process changes it at the same time. Try again.";

/** Differs after every change: no process can set the time of a file's last change to one that it chooses. */
export function versionOf({ ino, size, mode, mtimeMs, ctimeMs }: fs.Stats): string {
  return [ino, size, mode, mtimeMs, ctimeMs].join(":");
}

/** Throws if another version than the expected one is at the name. */
export function refuseChanged(
  operation: FileOperation,
  path: string,
  folder: Descriptor,
  name: string,
  expected: string | null | undefined,
): void {
  if (expected === undefined) return;
  const there = lookUp(folder, name);
  if ((there === null ? null : versionOf(there.stats)) !== expected) throw unfit(operation, path, CHANGED);
}

function entryOf(path: Looked["path"], stats: fs.Stats): Entry {
  const type = typeOf(stats);
  const size = type === "file" ? stats.size : 0;
  return { path, type, size, mode: stats.mode & 0o777, version: versionOf(stats) };
}

async function addEntries(
  folder: Descriptor,
  path: Looked["path"],
  budget: TreeBudget,
  entries: Entry[],
  depth = 1,
): Promise<void> {
  for await (const { name } of entriesOf(folder)) {
    budget.take(depth);
    using named = folder.child(name);
    const entry = entryOf(entryPath(path, name), named.stat());
    entries.push(entry);
    if (entry.type === "directory") await addEntries(named, entry.path, budget, entries, depth + 1);
  }
}

export async function readFile(root: Root, place: Place, options: ReadOptions & Guard): Promise<ReadResult> {
  using found = walk({ operation: "read", root, parts: place.parts, links: "follow", asked: place.path });
  using file = openFoundFile("read", place, found);
  options.checks?.read?.(found.path, file.stat().size);
  return await readContent(contentOf(file), place.path, options);
}

export async function readBytes(root: Root, place: Place, options: WholeOptions): Promise<Buffer> {
  using found = walk({ operation: "read", root, parts: place.parts, links: "follow", asked: place.path });
  using file = openFoundFile("read", place, found);
  const source = contentOf(file);
  options.checks?.read?.(found.path, source.size);
  if (source.size > options.maxBytes) throw unfit("read", place.path, tooLargeText(source.size, options.maxBytes));
  return await readAll(source);
}

/** Opens what a walk found if it is a regular file: opening a FIFO would block, and a device has no end. */
export function openFoundFile(
  operation: FileOperation,
  place: Place,
  found: Pick<Found, "type" | "descriptor">,
  flags: number = fs.constants.O_RDONLY,
): Descriptor {
  const refusal = whyNotRegular(found.type);
  if (refusal !== null) throw unfit(operation, place.path, refusal);
  return found.descriptor.reopen(flags);
}
