import fs from "node:fs";
import type { Expecting, Guard, Written } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import { appendAll, contentOf, copyContent, writeAll } from "./content.ts";
import type { Descriptor } from "./descriptor.ts";
import { openSlot } from "./folder.ts";
import { refuseChanged } from "./look.ts";
import { openRegular } from "./read.ts";
import { keeping, lookUp, replaceFile } from "./replace-file.ts";
import type { Root } from "./roots.ts";
import { typeOf, walk } from "./walk.ts";
import { writeFile } from "./write.ts";

export async function appendFile(
  root: Root,
  place: Place,
  bytes: Uint8Array,
  options: Guard & Expecting,
): Promise<Written> {
  if (!root.directory) return await appendTo(root, place, bytes, options);
  using slot = openSlot("append", root, place, true);
  refuseChanged("append", place.path, slot.folder, slot.name, options.expected?.to);
  const there = lookUp(slot.folder, slot.name);
  if (there === null) return await writeFile(root, place, bytes, { ...options, overwrite: false });
  if (there.type !== "file" || there.stats.nlink === 1) return await appendTo(root, place, bytes, options);

  // The file has other hard links, which must not change with it: it is replaced by a copy.
  using named = slot.folder.child(slot.name);
  using source = openRegular("append", place, { type: typeOf(named.stat()), descriptor: named });
  const size = source.stat().size + bytes.length;
  options.checks?.write?.(place.path, size);
  const fill = async (file: Descriptor): Promise<void> => {
    const copied = await copyContent(contentOf(source), file, options.signal);
    await writeAll(file, bytes, copied);
  };
  await replaceFile(slot.folder, slot.name, { ...keeping(there.stats), overwrite: true, fill });
  return { bytes: size, created: false };
}

async function appendTo(root: Root, place: Place, bytes: Uint8Array, options: Guard): Promise<Written> {
  using found = walk({ operation: "append", root, parts: place.parts, links: "refuse", asked: place.path });
  using file = openRegular("append", place, found, fs.constants.O_WRONLY | fs.constants.O_APPEND);
  options.checks?.write?.(place.path, file.stat().size + bytes.length);
  await appendAll(file, bytes);
  return { bytes: file.stat().size, created: false };
}
