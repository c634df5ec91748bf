import { randomUUID } from "node:crypto";
import { createWriteStream } from "node:fs";
import { chmod, lstat, mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { nullFor } from "../../platform/errno.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import { makeClosedDir } from "../state-dir.ts";
import { statePaths } from "../state-paths.ts";

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

  /** For one request. Disposing removes it. */
  async batch(): Promise<UploadBatch> {
    const dir = join(this.#dir, randomUUID());
    await mkdir(dir, { mode: 0o700 });
    return new UploadBatch(dir);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true });
  }
}

export class UploadBatch implements AsyncDisposable {
  readonly #dir: string;
  #count = 0;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Answers with the path of the file. The user of a cell may read it there; on the host no other user can enter its folder. */
  async keep(content: Readable): Promise<string> {
    this.#count += 1;
    const path = join(this.#dir, String(this.#count));
    await pipeline(content, createWriteStream(path, { flags: "wx", mode: 0o600 }));
    // Whatever the umask of the service.
    await chmod(path, 0o644);
    return path;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true });
  }
}

/** Other users may write in the folder for temporary files. */
async function removeOwn(dir: string): Promise<void> {
  const found = await lstat(dir).catch(nullFor("ENOENT"));
  if (found?.isDirectory() && found.uid === process.geteuid?.()) await rm(dir, { recursive: true, force: true });
}
