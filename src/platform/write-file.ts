import { randomUUID } from "node:crypto";
import { chmod, link, open, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { nullFor } from "./errno.ts";

/*
 * For directories that only Corral writes. A new file is written beside its place and gets its name when it is whole:
 * a reader sees the old content or the new one, never a part.
 */

export interface WriteOptions {
  /** Exactly these bits, whatever the process's umask. Default 0600. */
  readonly mode?: number;
  /** The content and the name last through a power failure. */
  readonly durable?: boolean;
}

/** Replaces a file at once, or makes it. */
export async function writeAtomically(path: string, content: string | Uint8Array, options?: WriteOptions) {
  await written(path, content, options, (draft) => rename(draft, path));
  if (options?.durable !== true) return;
  await using folder = await open(dirname(path), "r");
  await folder.sync();
}

/**
 * Makes a file, unless another process was faster: then that file stays, and so does what is known of it (its inode, in
 * a plan). Returns whether this call made it.
 */
export async function writeIfMissing(path: string, content: string | Uint8Array, options?: WriteOptions) {
  const made = await written(path, content, options, (draft) => link(draft, path)).then(() => true, nullFor("EEXIST"));
  return made ?? false;
}

async function written(
  path: string,
  content: string | Uint8Array,
  { mode = 0o600, durable = false }: WriteOptions = {},
  name: (draft: string) => Promise<void>,
): Promise<void> {
  const draft = `${path}.${randomUUID()}`;
  try {
    await writeFile(draft, content, { mode, flag: "wx", flush: durable });
    await chmod(draft, mode);
    await name(draft);
  } finally {
    await rm(draft, { force: true });
  }
}
