import fs from "node:fs";
import {
  type Guard,
  type Place,
  type ReadOptions,
  type ReadResult,
  type WholeOptions,
  whyNotRegular,
} from "../model/files.ts";
import { type FileOperation, tooLargeText, unfit } from "../model/refusals.ts";
import { readContent } from "../read/read-content.ts";
import { readAll } from "../read/read-text.ts";
import { contentOf } from "./content.ts";
import type { Descriptor, Root } from "./descriptor.ts";
import { type Found, walk } from "./walk.ts";

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
