import { createReadStream } from "node:fs";
import { type FileHandle, lstat, mkdir, open, opendir, readlink, rename, rm, symlink } from "node:fs/promises";
import { basename, dirname, join, posix, resolve, sep } from "node:path";
import { pipeline } from "node:stream/promises";
import { pack } from "tar-stream";
import { DiskFull, isDiskFull, roomAt } from "../../platform/errno.ts";
import { tarEntries } from "../../platform/tar-entries.ts";
import { formatBytes } from "../../text/amounts.ts";
import { UsageError } from "../terminal/arguments.ts";

/** How a file that is sent is read. */
export const SENT_PIECES = { highWaterMark: 1024 ** 2 } as const;

/** Of one folder. */
const MAX_ENTRIES = 200_000;

/** A folder of this machine as a tar archive; links stay links, and what is no file or folder is left out. */
export function folderArchive(dir: string): AsyncIterable<Uint8Array> {
  const archive = pack();
  const add = async (path: string, name: string): Promise<void> => {
    for await (const entry of await opendir(path)) {
      const [at, as] = [join(path, entry.name), `${name}${entry.name}`];
      const { mode, size } = await lstat(at);
      if (entry.isSymbolicLink()) archive.entry({ name: as, type: "symlink", linkname: await readlink(at) });
      else if (entry.isDirectory()) {
        archive.entry({ name: `${as}/`, type: "directory" });
        await add(at, `${as}/`);
      } else if (entry.isFile() && size === 0) archive.entry({ name: as, mode: mode & 0o777 }, "");
      else if (entry.isFile()) {
        const into = archive.entry({ name: as, mode: mode & 0o777, size });
        // A file that grows meanwhile is as it was when its size was read.
        await pipeline(createReadStream(at, { ...SENT_PIECES, end: size - 1 }), into);
      }
    }
  };
  add(dir, "").then(
    () => archive.finalize(),
    (error: Error) => archive.destroy(error),
  );
  return archive as AsyncIterable<Uint8Array>;
}

/** Half of what is free stays free, for others. */
const OF_FREE = 0.5;
/** What is written of zeros in so many bytes is a hole. */
const BLOCK = 4096;
/** Pieces that come are smaller: each would cost a turn. */
const WRITTEN_BYTES = 512 * 1024;
const ZEROS = Buffer.alloc(BLOCK);

/** How much a session may send, all in all: what it has written is its own choice, and may be endless. */
export class Allowance {
  readonly to: string;
  readonly #maxBytes: number;
  readonly #isSaid: boolean;
  #bytes = 0;

  /** `saidBytes`: null for half of what is free at `to`. */
  constructor(to: string, saidBytes: number | null) {
    this.to = to;
    this.#isSaid = saidBytes !== null;
    this.#maxBytes = saidBytes ?? (roomAt(dirname(resolve(to)))?.freeBytes ?? 0) * OF_FREE;
  }

  /** @throws UsageError if it is used up */
  take(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes <= this.#maxBytes) return;
    const most = formatBytes(Math.floor(this.#maxBytes));
    throw new UsageError(
      this.#isSaid
        ? `${this.to} is not written: it is more than the ${most} of --max-bytes`
        : `${this.to} is not written: it is more than ${most}, half of what is free there; --max-bytes allows more`,
    );
  }
}

/** Writes pieces to a new file, zeros as holes. */
async function writePieces(pieces: AsyncIterable<Uint8Array>, path: string, mode: number, allowance: Allowance) {
  await using file = await open(path, "wx", mode);
  let at = 0;
  let writing = Promise.resolve();
  try {
    // Two for all: one is filled while the other is written. To have each made, and freed, costs more than to fill it.
    let [held, other] = [Buffer.allocUnsafeSlow(WRITTEN_BYTES), Buffer.allocUnsafeSlow(WRITTEN_BYTES)];
    let bytes = 0;
    const write = async (): Promise<void> => {
      await writing;
      writing = writeSparse(file, held.subarray(0, bytes), at);
      // Who waits for it has its error.
      writing.catch(() => {});
      [held, other, at, bytes] = [other, held, at + bytes, 0];
    };
    for await (const piece of pieces) {
      allowance.take(piece.length);
      for (let from = 0; from < piece.length; ) {
        const part = piece.subarray(from, from + held.length - bytes);
        held.set(part, bytes);
        from += part.length;
        bytes += part.length;
        if (bytes === held.length) await write();
      }
    }
    if (bytes > 0) await write();
    await writing;
    await file.truncate(at);
  } catch (error) {
    await writing.catch(() => {});
    throw isDiskFull(error) ? new DiskFull(allowance.to, { cause: error }) : error;
  }
}

async function writeSparse(file: FileHandle, piece: Uint8Array, begin: number): Promise<void> {
  const isZero = (from: number): boolean => {
    // Most blocks are not, and this is seen without looking at all of them.
    if (piece[from] !== 0) return false;
    const block = piece.subarray(from, from + BLOCK);
    return ZEROS.subarray(0, block.length).equals(block);
  };
  let from = 0;
  while (from < piece.length) {
    const isHole = isZero(from);
    let to = from;
    while (to < piece.length && isZero(to) === isHole) to = Math.min(to + BLOCK, piece.length);
    for (let done = from; !isHole && done < to; )
      done += (await file.write(piece, done, to - done, begin + done)).bytesWritten;
    from = to;
  }
}

/** Writes a file: it is complete, or as before. */
export async function receivedFile(
  pieces: AsyncIterable<Uint8Array>,
  to: string,
  allowance: Allowance,
): Promise<number> {
  const part = join(dirname(to), `.${basename(to)}.${process.pid}.part`);
  try {
    await writePieces(pieces, part, 0o666, allowance);
    await rename(part, to);
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  }
  return 0;
}

/**
 * Writes a folder that a session made into a new one, and returns how many entries were left out. No link is there before the last file is:
 * none is followed. Links that lead out of the folder are none of it.
 */
export async function receivedFolder(
  pieces: AsyncIterable<Uint8Array>,
  to: string,
  allowance: Allowance,
): Promise<number> {
  await mkdir(to).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "EEXIST") throw new UsageError(`${to} exists: a folder is written to a new one`);
    throw error;
  });
  try {
    return await receivedEntries(pieces, to, allowance);
  } catch (error) {
    await rm(to, { recursive: true, force: true });
    throw error;
  }
}

/** A path of an archive that is not below the archive's own folder. `separator`: Windows reads more in a name than others. */
export function leadsOut(path: string, separator = sep): boolean {
  const plain = posix.normalize(path);
  const isOdd = plain.includes("\0") || (separator === "\\" && /[\\:]/.test(plain));
  return isOdd || posix.isAbsolute(plain) || plain === ".." || plain.startsWith("../");
}

/** Where an entry of an archive is written below a folder. @throws if it leads out of it */
export function placeBelow(to: string, name: string): string {
  if (leadsOut(name)) throw new Error("the archive leads out of the folder");
  return join(to, posix.normalize(name).replace(/\/$/, ""));
}

async function receivedEntries(pieces: AsyncIterable<Uint8Array>, to: string, allowance: Allowance): Promise<number> {
  const links: (readonly [path: string, target: string])[] = [];
  let [entries, skipped] = [0, 0];
  for await (const entry of tarEntries(pieces)) {
    entries += 1;
    if (entries > MAX_ENTRIES) throw new Error(`the folder has more than ${MAX_ENTRIES} entries`);
    const { name, type, linkname, mode = 0 } = entry.header;
    const plain = posix.normalize(name).replace(/\/$/, "");
    const path = placeBelow(to, name);
    if (plain === ".") entry.resume();
    else if (type === "directory") {
      await mkdir(path, { recursive: true });
      entry.resume();
    } else if (type === "file") {
      await mkdir(dirname(path), { recursive: true });
      const bits = (mode & 0o100) === 0 ? 0o666 : 0o777;
      await writePieces(entry as AsyncIterable<Uint8Array>, path, bits, allowance);
    } else {
      if (
        type === "symlink" &&
        linkname &&
        !leadsOut(posix.join(posix.dirname(plain), linkname)) &&
        !posix.isAbsolute(linkname)
      )
        links.push([path, linkname]);
      else skipped += 1;
      entry.resume();
    }
  }
  for (const [path, target] of links) await symlink(target, path);
  return skipped;
}
