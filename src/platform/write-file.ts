import { randomUUID } from "node:crypto";
import fs, { constants } from "node:fs";
import { chmod, type FileHandle, link, open, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { nullFor } from "./errno.ts";

const { O_NOFOLLOW, O_NONBLOCK } = constants;

/**
 * Opens a regular file of Corral's own. What is found in its place, such as a link, a FIFO or a device, is an error: a link
 * would lead elsewhere, and the others could wait forever.
 */
export async function openRegular(path: string, flags: number, mode?: number): Promise<FileHandle> {
  const handle = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, mode);
  try {
    if ((await handle.stat()).isFile()) return handle;
    throw notRegular(path);
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** A descriptor of this process, with the size that the file had. */
export interface OpenFile extends Disposable {
  readonly fd: number;
  readonly size: number;
}

/** The same in one turn, for a short file that is read or written often: another thread for each call costs more than the call. */
export function openRegularNow(path: string, flags: number, mode?: number): OpenFile {
  const fd = fs.openSync(path, flags | O_NOFOLLOW | O_NONBLOCK, mode);
  const close = (): void => fs.closeSync(fd);
  try {
    const stats = fs.fstatSync(fd);
    if (stats.isFile()) return { fd, size: stats.size, [Symbol.dispose]: close };
    throw notRegular(path);
  } catch (error) {
    close();
    throw error;
  }
}

function notRegular(path: string): Error {
  return new Error(`${path} is not a regular file. Remove it`);
}

/*
 * For directories that only Corral writes. A new file is written beside its place and gets its name when it is whole:
 * a reader sees the old content or the new one, never a part.
 */

export interface OwnFileOptions {
  /** Exactly these bits, whatever the process's umask. Default 0600. */
  readonly mode?: number;
  /** The content and the name last through a power failure. */
  readonly durable?: boolean;
}

/** Replaces a file at once, or makes it. */
export async function writeAtomically(path: string, content: string | Uint8Array, options?: OwnFileOptions) {
  await written(path, content, options, (draft) => rename(draft, path));
  if (options?.durable !== true) return;
  await using folder = await open(dirname(path), "r");
  await folder.sync();
}

/**
 * Makes a file, unless another process was faster: then that file stays, and so does what is known of it (its inode, in
 * a plan). Returns whether this call made it.
 */
export async function writeIfMissing(path: string, content: string | Uint8Array, options?: OwnFileOptions) {
  const made = await written(path, content, options, (draft) => link(draft, path)).then(() => true, nullFor("EEXIST"));
  return made ?? false;
}

async function written(
  path: string,
  content: string | Uint8Array,
  { mode = 0o600, durable = false }: OwnFileOptions = {},
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
