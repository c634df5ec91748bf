import fs, { constants } from "node:fs";
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
