import fs from "node:fs";
import type { Guard, ReadOptions, ReadResult } from "../model/files.ts";
import type { Place } from "../model/place.ts";
import { type FileOperation, IS_DIRECTORY, unfit } from "../model/refusals.ts";
import { readContent } from "../read/read-content.ts";
import { contentOf } from "./content.ts";
import type { Descriptor } from "./descriptor.ts";
import type { Root } from "./roots.ts";
import { type Found, walk } from "./walk.ts";

export async function readFile(root: Root, place: Place, options: ReadOptions & Guard): Promise<ReadResult> {
  using found = walk({ operation: "read", root, parts: place.parts, links: "follow", asked: place.path });
  using file = openRegular("read", place, found);
  options.checks?.read?.(found.path, file.stat().size);
  return await readContent(contentOf(file), place.path, options);
}

/** Opens what a walk found if it is a regular file: opening a FIFO would block, and a device has no end. */
export function openRegular(
  operation: FileOperation,
  place: Place,
  found: Pick<Found, "type" | "descriptor">,
  flags: number = fs.constants.O_RDONLY,
): Descriptor {
  const refusal = whyNotRegular(found.type);
  if (refusal !== null) throw unfit(operation, place.path, refusal);
  return found.descriptor.reopen(flags);
}

export function whyNotRegular(type: Found["type"]): string | null {
  switch (type) {
    case "file":
      return null;
    case "directory":
      return IS_DIRECTORY;
    case "link":
      return "it is a symbolic link, and nothing is changed through links. Delete it first, or name the file that it leads to.";
    case "other":
      return "it is not a regular file (a FIFO, a socket or a device). Only regular files are opened.";
  }
}
