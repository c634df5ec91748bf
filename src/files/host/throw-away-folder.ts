import { chown, lstat, mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { nullFor } from "../../platform/errno.ts";
import { isRoot } from "./descriptor.ts";

/** Under a policy without user 0, a folder of root's could be written by nobody. */
const NOT_ROOT = 65_532;

/** A folder with a project for one use, and what hostile workers may have done to it. Disposing removes it. */
export class ThrowAwayFolder implements AsyncDisposable {
  /** Absolute. */
  readonly dir: string;

  private constructor(dir: string) {
    this.dir = dir;
  }

  static async make(prefix: string): Promise<ThrowAwayFolder> {
    return new ThrowAwayFolder(await mkdtemp(join(tmpdir(), prefix)));
  }

  path(name: string): string {
    return join(this.dir, name);
  }

  async write(files: Readonly<Record<string, string>>): Promise<void> {
    for (const [name, text] of Object.entries(files)) {
      await mkdir(dirname(this.path(name)), { recursive: true });
      await writeFile(this.path(name), text);
    }
  }

  async link(name: string, target: string): Promise<void> {
    await symlink(target, this.path(name));
  }

  /** A folder, and the files in it, that workers may write. */
  async makeWritable(name: string): Promise<void> {
    await mkdir(this.path(name), { recursive: true });
    if (!isRoot()) return;
    for (const one of [name, ...(await this.names(name)).map((file) => join(name, file))])
      await chown(this.path(one), NOT_ROOT, NOT_ROOT);
  }

  async names(folder: string): Promise<string[]> {
    return (await readdir(this.path(folder))).toSorted();
  }

  /** Null if it is missing, or no regular file. */
  async text(name: string): Promise<string | null> {
    const isFile = (await lstat(this.path(name)).catch(nullFor("ENOENT")))?.isFile() ?? false;
    return isFile ? await readFile(this.path(name), "utf8") : null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.dir, { recursive: true, force: true });
  }
}

/** Whether a process of this machine, also in a container, has this text among the words of its command. */
export async function isRunning(mark: string): Promise<boolean> {
  const ids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const texts = await Promise.all(ids.map((id) => readFile(`/proc/${id}/cmdline`, "utf8").catch(() => "")));
  return texts.some((text) => text.includes(mark));
}
