import fs from "node:fs";
import { contentOf } from "../../files/host/content.ts";
import type { Descriptor } from "../../files/host/descriptor.ts";
import { codeOf } from "../../platform/errno.ts";
import type { EntryFacts } from "../model/changeset.ts";
import { factsOf, type RawName, rawChild } from "../model/raw-name.ts";

const PIECE_BYTES = 256 * 1024;

/** True where a file that somebody opened for writing holds what it held before. The other must still be what it was. */
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
    // What cannot be compared has changed, as far as anybody can tell.
    if (codeOf(error) !== undefined) return false;
    throw error;
  }
}

/** A regular file, looked at before it is opened, so that a FIFO holds nobody up. */
function openFile(folder: Descriptor, name: RawName): Descriptor | null {
  using named = rawChild(folder, name);
  return named.stat().isFile() ? named.reopen(fs.constants.O_RDONLY) : null;
}
