import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";

const { O_NOFOLLOW, O_NONBLOCK } = constants;

/**
 * Opens a regular file of Corral's own. What is found in its place, such as a link, a FIFO or a device, is an error: a link
 * would lead elsewhere, and the others could wait forever.
 */
export async function openRegular(path: string, flags: number, mode?: number): Promise<FileHandle> {
  const handle = await open(path, flags | O_NOFOLLOW | O_NONBLOCK, mode);
  try {
    if ((await handle.stat()).isFile()) return handle;
    throw new Error(`${path} is not a regular file. Remove it`);
  } catch (error) {
    await handle.close();
    throw error;
  }
}
