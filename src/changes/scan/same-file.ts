import fs from "node:fs";
import { contentOf } from "../../files/host/content.ts";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { codeOf } from "../../platform/errno.ts";
import type { EntryFacts } from "../model/changeset.ts";
import { factsOf, type RawName, rawChild } from "../model/raw-name.ts";

const PIECE_BYTES = 256 * 1024;

/** True if a file that was opened for writing has the same content as before. The original must not have changed. */
export async function sameFile(
  content: Descriptor,
  target: Descriptor,
  name: RawName,
  base: EntryFacts,
): Promise<boolean> {
  try {
    using before = openFile(target, name);
    using now = openFile(content, name);
    if (before === null || now === null) return false;
    const facts = factsOf(fs.fstatSync(before.fd, { bigint: true }));
    if (facts?.inode !== base.inode || facts.ctimeNs !== base.ctimeNs) return false;
    const [a, b] = [contentOf(before), contentOf(now)];
    if (a.size !== b.size) return false;
    for (let at = 0; at < a.size; at += PIECE_BYTES) {
      const [one, other] = await Promise.all([a.read(at, PIECE_BYTES), b.read(at, PIECE_BYTES)]);
      if (!one.equals(other)) return false;
    }
    return true;
  } catch (error) {
    // A file that cannot be compared counts as changed.
    if (codeOf(error) !== undefined) return false;
    throw error;
  }
}

/** Opens a regular file. Its type is checked first, since opening a FIFO would block. */
function openFile(folder: Descriptor, name: RawName): Descriptor | null {
  using named = rawChild(folder, name);
  return named.stat().isFile() ? named.reopen(fs.constants.O_RDONLY) : null;
}
