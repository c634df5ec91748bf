import { randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { chmod, lstat, mkdir, mkdtemp, readFile, rm, statfs } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { pipeline } from "node:stream/promises";
import { hasCode, nullFor } from "../../platform/errno.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import { makeClosedDir, statePaths } from "../state-dir.ts";

const PREFIX = "corral-uploads-";

/**
 * Files that clients sent, each below a name of Corral's own. They are outside of the state directory, of which no cell may be
 * shown anything, in a folder that only this user can enter.
 */
export class UploadFolder implements AsyncDisposable {
  readonly #dir: string;

  private constructor(dir: string) {
    this.#dir = dir;
  }

  /** Removes first what a service that was killed has left. */
  static async make(stateDir: string): Promise<UploadFolder> {
    const { service } = statePaths(stateDir);
    await makeClosedDir(service);
    const record = join(service, "uploads");
    const left = basename((await readFile(record, "utf8").catch(nullFor("ENOENT"))) ?? "");
    if (/^corral-uploads-\w{6}$/.test(left)) await removeOwn(join(tmpdir(), left));
    const dir = await mkdtemp(join(tmpdir(), PREFIX));
    await writeAtomically(record, basename(dir));
    return new UploadFolder(dir);
  }

  /** For one request. Disposing removes it, and gives back its room. */
  async batch(room: UploadRoom): Promise<UploadBatch> {
    const dir = join(this.#dir, randomUUID());
    await mkdir(dir, { mode: 0o700 });
    return new UploadBatch(dir, room);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true });
  }
}

/** Counts the bytes of a batch on the disk. */
export interface UploadRoom extends Disposable {
  /** False: there is no room for them. */
  take(bytes: number): boolean;
}

/** There is no room for a file. */
export class UploadRoomError extends Error {
  override readonly name = "UploadRoomError";
}

export class UploadBatch implements AsyncDisposable {
  readonly #dir: string;
  readonly #room: UploadRoom;
  #count = 0;

  constructor(dir: string, room: UploadRoom) {
    this.#dir = dir;
    this.#room = room;
  }

  /** Answers with the path of the file. The user of a cell may read it there; on the host no other user can enter its folder. @throws UploadRoomError */
  async keep(content: AsyncIterable<Buffer>): Promise<string> {
    this.#count += 1;
    const path = join(this.#dir, String(this.#count));
    const written = createWriteStream(path, { flags: "wx", mode: 0o600 });
    await pipeline(counted(content, this.#room), written).catch((error: unknown) => {
      throw hasCode(error, "ENOSPC", "EDQUOT") ? noRoom(error) : error;
    });
    // Whatever the umask of the service.
    await chmod(path, 0o644);
    return path;
  }

  /** The folder of its files. What is made of them may lie there too, below names that are no numbers, and goes with it. */
  get dir(): string {
    return this.#dir;
  }

  /** Counts what was made of them. False: there is no room for it. */
  take(bytes: number): boolean {
    return this.#room.take(bytes);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true });
    this.#room[Symbol.dispose]();
  }
}

async function* counted(content: AsyncIterable<Buffer>, room: UploadRoom): AsyncGenerator<Buffer> {
  for await (const piece of content) {
    if (!room.take(piece.length)) throw noRoom();
    yield piece;
  }
}

function noRoom(cause?: unknown): UploadRoomError {
  return new UploadRoomError("the uploads that the service keeps leave no room for this one", { cause });
}

/** How many bytes the uploads of all clients may have together: a part of what is free now. */
export async function uploadSpace(mostBytes: number): Promise<number> {
  const { bavail, bsize } = await statfs(tmpdir());
  return Math.min(mostBytes, Math.floor((bavail * bsize) / 4));
}

/** Other users may write in the folder for temporary files. */
async function removeOwn(dir: string): Promise<void> {
  const found = await lstat(dir).catch(nullFor("ENOENT"));
  if (found?.isDirectory() && found.uid === process.geteuid?.()) await rm(dir, { recursive: true, force: true });
}
