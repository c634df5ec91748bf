import fs from "node:fs";
import type { WriteOptions, Written } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import { unfit } from "../model/refusals.ts";
import { whyNotRegular } from "../model/regular.ts";
import { overwrite, writeAll } from "./content.ts";
import { openSlot } from "./folder.ts";
import { refuseChanged } from "./look.ts";
import { openRegular } from "./read.ts";
import { keeping, lookUp, replaceFile } from "./replace-file.ts";
import type { Root } from "./roots.ts";
import { walk } from "./walk.ts";

export async function writeFile(root: Root, place: Place, bytes: Uint8Array, options: WriteOptions): Promise<Written> {
  options.checks?.write?.(place.path, bytes.length);
  if (!root.directory) return writeInPlace(root, place, bytes);
  using slot = openSlot("write", root, place, true);
  const there = lookUp(slot.folder, slot.name);
  const refusal = there === null ? null : whyNotRegular(there.type);
  if (refusal !== null) throw unfit("write", place.path, refusal);
  await replaceFile(slot.folder, slot.name, {
    ...keeping(there?.stats),
    overwrite: options.overwrite ?? true,
    fill: async (file) => {
      await writeAll(file, bytes, 0);
      refuseChanged("write", place.path, slot.folder, slot.name, options.expected?.to);
    },
  });
  return { bytes: bytes.length, created: there === null };
}

/** A mount that is a single file is written in place: a cell that has it mounted would keep the old file if it were replaced. */
export async function writeInPlace(root: Root, place: Place, bytes: Uint8Array): Promise<Written> {
  using found = walk({ operation: "write", root, parts: place.parts, links: "refuse", asked: place.path });
  using file = openRegular("write", place, found, fs.constants.O_WRONLY);
  await overwrite(file, bytes);
  return { bytes: bytes.length, created: false };
}
