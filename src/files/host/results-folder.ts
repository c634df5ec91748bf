import { constants } from "node:fs";
import {
  chown,
  copyFile,
  cp,
  link,
  lstat,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  realpath,
  rename,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { hasCode, nullFor } from "../../platform/errno.ts";
import { Descriptor, isRoot } from "./descriptor.ts";
import { entriesOf } from "./look.ts";

/* The folder of the results of a conversion: what containers wrote is in it, so nothing there is believed to be what it was. */

/** Makes it if it is missing, and answers with its real path. `owner`: of a new one; null: who makes it. */
export async function makeResultsFolder(
  path: string,
  owner: { readonly uid: number; readonly gid: number } | null,
): Promise<string> {
  const made = await mkdir(path, { recursive: true });
  if (made !== undefined && owner !== null) {
    await using folder = await open(path, constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW);
    await folder.chown(owner.uid, owner.gid);
  }
  return await realpath(path);
}

/** A copy of a folder of Corral's own, that everyone may read. Answers with its path. */
export async function copiedFolder(from: string, to: string): Promise<string> {
  await cp(from, to, { recursive: true });
  return to;
}

/** Without links. Null: there is nothing. */
export async function realPathOf(path: string): Promise<string | null> {
  return await realpath(path).catch(nullFor("ENOENT", "ENOTDIR", "ELOOP"));
}

/** Names of Corral's own for files, in a folder that disposing removes. */
export interface OtherNames extends AsyncDisposable {
  readonly folder: string;
  /** In the order of the files. */
  readonly paths: readonly string[];
}

/** Each is a link if the disk allows it, else a copy. */
export async function otherNames(files: readonly Buffer[], out: string): Promise<OtherNames> {
  const folder = await mkdtemp(join(out, ".names-"));
  const paths: string[] = [];
  for (const [at, file] of files.entries()) {
    const path = join(folder, String(at));
    await link(file, path).catch(async () => await copyFile(file, path, constants.COPYFILE_FICLONE));
    paths.push(path);
  }
  return { folder, paths, [Symbol.asyncDispose]: async () => await rm(folder, { recursive: true, force: true }) };
}

/** At once: a reader sees the results of one time. A link there, which a file could have been named like, is replaced. */
export async function writeResult(out: string, name: string, pieces: AsyncIterable<string>): Promise<void> {
  const path = join(out, `.${name}-${process.pid}`);
  await rm(path, { force: true });
  await using file = await open(path, "wx");
  for await (const piece of pieces) await file.appendFile(piece);
  await rename(path, join(out, name));
}

/** What {@link writeResult} wrote; null: nothing. */
export async function readResult(out: string, name: string): Promise<string | null> {
  return await readFile(join(out, name), "utf8").catch(nullFor("ENOENT"));
}

/** A regular file or a directory of the results of a conversion. */
export interface ResultEntry {
  /** Below the folder of all results. */
  readonly path: string;
  readonly type: "file" | "directory";
  readonly bytes: number;
  readonly mode: number;
  readonly content: AsyncIterable<Buffer>;
}

const MAX_DEPTH = 100;

/** A regular file of the results; null: there is none. Nothing that containers wrote leads elsewhere: no link is followed. */
export function resultFile(out: string, path: string): ResultEntry | null {
  const names = path.split("/");
  if (names.some((name) => name === "" || name === "." || name === ".." || name.includes("\0"))) return null;
  try {
    using file = named(out, names);
    const stats = file.stat();
    if (!stats.isFile()) return null;
    return { path, type: "file", bytes: stats.size, mode: stats.mode, content: contentOf(out, names, stats.size) };
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR", "ELOOP", "ENAMETOOLONG")) return null;
    throw error;
  }
}

/** All of them, or those of one folder, but links and what is neither a file nor a directory. */
export async function* resultEntries(out: string, folder = ""): AsyncGenerator<ResultEntry, void, undefined> {
  const names = folder.split("/").filter((name) => name !== "");
  using top = Descriptor.name(out, true);
  using start = top.below(names);
  yield* entriesBelow(start, out, names);
}

async function* entriesBelow(
  folder: Descriptor,
  out: string,
  above: readonly string[],
): AsyncGenerator<ResultEntry, void, undefined> {
  if (above.length > MAX_DEPTH) return;
  for await (const { name: raw, type } of entriesOf(folder)) {
    const name = raw.toString();
    // What Corral itself has begun to write.
    if ((above.length === 0 && name.startsWith(".")) || (type !== "file" && type !== "directory")) continue;
    const names = [...above, name];
    const path = names.join("/");
    using entry = folder.child(raw, type === "directory");
    const { mode, size } = entry.stat();
    if (type === "file") yield { path, type, bytes: size, mode, content: contentOf(out, names, size) };
    else {
      yield { path, type, bytes: 0, mode, content: contentOf(out, names, 0) };
      yield* entriesBelow(entry, out, names);
    }
  }
}

function named(out: string, names: readonly string[]): Descriptor {
  using top = Descriptor.name(out, true);
  using folder = top.below(names.slice(0, -1));
  return folder.child(names.at(-1) ?? "");
}

async function* contentOf(out: string, names: readonly string[], bytes: number): AsyncGenerator<Buffer> {
  if (bytes === 0) return;
  using entry = named(out, names);
  await using file = await open(entry.path(), constants.O_RDONLY | constants.O_NONBLOCK);
  let left = bytes;
  for await (const piece of file.createReadStream({ autoClose: false, end: bytes - 1 })) {
    left -= (piece as Buffer).length;
    yield piece as Buffer;
  }
  if (left > 0) throw new Error("the file became shorter while it was read");
}

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
