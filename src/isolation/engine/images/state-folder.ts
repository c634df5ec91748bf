import { randomUUID } from "node:crypto";
import { chmod, link, mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";

/** Makes a folder of Corral's state, open to its owner alone, and every folder above it that is missing. */
export async function makeStateFolder(dir: string): Promise<void> {
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const { mode, uid } = await stat(dir);
  if ((mode & 0o077) !== 0 && uid === process.getuid?.()) await chmod(dir, 0o700);
}

/** Replaces a file at once: a reader sees the old content or the new one, never a part. */
export async function writeAtomically(file: string, content: string | Buffer, mode = 0o600): Promise<void> {
  const draft = `${file}.${randomUUID()}`;
  try {
    await writeFile(draft, content, { mode, flag: "wx" });
    await chmod(draft, mode);
    await rename(draft, file);
  } finally {
    await rm(draft, { force: true });
  }
}

/**
 * Writes a file that is not there yet. Where another process was faster, its file stays: what has been told of a file
 * (its inode, in a plan) stays true. Answers whether it was this one.
 */
export async function writeIfMissing(file: string, content: Buffer, mode: number): Promise<boolean> {
  const draft = `${file}.${randomUUID()}`;
  try {
    await writeFile(draft, content, { mode, flag: "wx" });
    await chmod(draft, mode);
    await link(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EEXIST") return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

/** The file's content as JSON; `undefined` where it is missing or not JSON, since what is recorded here can be found out again. */
export async function readRecord(file: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(file, "utf8"));
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
