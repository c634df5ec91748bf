import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { contentOf, copyContent } from "../../files/host/content.ts";
import { Descriptor } from "../../files/host/descriptor.ts";
import { removeTree } from "../../files/host/remove-tree.ts";
import { pinned } from "../../files/host/roots.ts";
import type { Sandbox } from "../../sandbox/sandbox.ts";
import { formatBytes } from "../../sandbox/units.ts";
import { CannotStage } from "./base-tree.ts";
import { MAX_COPIED_BYTES } from "./copy-tree.ts";
import { lentFiles } from "./lending.ts";

/** Copies of single files, by the host paths of the originals; disposing removes them. */
export interface LentCopies extends AsyncDisposable {
  readonly copies: ReadonlyMap<string, string>;
}

export interface LentCopiesRequest {
  readonly sandbox: Pick<Sandbox, "mounts" | "policy">;
  /** A directory to make below one of Corral's own, if there is anything to copy. */
  readonly dir: string;
  readonly isRefused: (host: string) => boolean;
  readonly signal: AbortSignal;
}

/** Copies the files that the user of the cell could not read. Rejects with `CannotStage` if they are too large. */
export async function lendFiles(
  hosts: readonly string[],
  { sandbox, dir, isRefused, signal }: LentCopiesRequest,
): Promise<LentCopies> {
  const { borrower, lent } = lentFiles(hosts, sandbox, isRefused);
  const copies = new Map<string, string>();
  const remove = async (): Promise<void> => {
    if (lent.length > 0) await removeTree(dir);
  };
  let bytes = 0;
  try {
    if (lent.length > 0) await mkdir(dir, { mode: 0o700 });
    for (const host of lent) {
      using found = pinned(host);
      // What is no file, or is gone, is refused when the cell is prepared.
      if (found === null || !found.stat().isFile()) continue;
      bytes += found.stat().size;
      if (bytes > MAX_COPIED_BYTES)
        throw new CannotStage(`more than ${formatBytes(MAX_COPIED_BYTES)} would have to be copied`);
      using source = found.reopen(fs.constants.O_RDONLY);
      const copy = join(dir, String(copies.size));
      using file = Descriptor.create(copy, 0o400);
      await copyContent(contentOf(source), file, signal);
      fs.fchownSync(file.fd, borrower.uid, borrower.gid);
      copies.set(host, copy);
    }
  } catch (error) {
    await remove();
    throw error;
  }
  return { copies, [Symbol.asyncDispose]: remove };
}
