import { randomBytes } from "node:crypto";
import { constants, lstatSync } from "node:fs";
import { chmod, link, lstat, mkdir, open, readFile, rename, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { nullFor } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import { writeAtomically } from "../../platform/write-file.ts";
import type { OwnFile } from "../plan/mounts.ts";
import { CELL_HOST_NAME, LOCAL_NAMES } from "../plan/plan.ts";

/** Files on the host that replace, in a cell without a network, those that the Engine makes for its networks. */
export interface NameFiles {
  readonly hosts: string;
  readonly resolver: string;
  readonly hostname: string;
}

/** A cell without a network must not learn the host's name servers. */
const RESOLVER = "nameserver 127.0.0.1\n";
const HOSTNAME = `${CELL_HOST_NAME}\n`;

/** The files of one directory that no worker can write. Several processes may make them at once. */
export class NameFileSet {
  readonly #dir: string;
  /** Their inode, size and change time when they were written, to notice any later change. */
  #made: ReadonlyMap<string, string> = new Map();

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Makes them if they are missing or were changed, for example by a clean-up during a long-lived process. */
  async files(): Promise<NameFiles> {
    const place = (name: string): string => join(this.#dir, name);
    const files: NameFiles = { hosts: place("hosts"), resolver: place("resolv.conf"), hostname: place("hostname") };
    const all = Object.values(files);
    if (!all.every((file) => this.#made.has(file) && this.#made.get(file) === traitsOf(file))) {
      await mkdir(this.#dir, { recursive: true, mode: 0o755 });
      await writeUnlessSame(files.hosts, LOCAL_NAMES);
      await writeUnlessSame(files.resolver, RESOLVER);
      await writeUnlessSame(files.hostname, HOSTNAME);
      this.#made = new Map(all.map((file) => [file, traitsOf(file)]));
    }
    return files;
  }
}

/** Empty if it does not exist. */
function traitsOf(file: string): string {
  const stats = lstatSync(file, { bigint: true, throwIfNoEntry: false });
  return stats === undefined ? "" : [stats.dev, stats.ino, stats.size, stats.ctimeNs].join(":");
}

async function writeUnlessSame(file: string, content: string): Promise<void> {
  const there = await readFile(file, "utf8").catch(() => null);
  if (there !== content) await writeAtomically(file, content, { mode: 0o444 });
}

/** A file for cells to have at `path`: those with the same content share it. `gc` removes what no cell was given lately; a cell that has it keeps it. */
export async function sharedFile(dir: string, path: string, content: Buffer): Promise<OwnFile> {
  await mkdir(dir, { recursive: true, mode: 0o755 });
  const host = join(dir, sha256(content));
  const now = new Date();
  const isThere = (await utimes(host, now, now).catch(nullFor("ENOENT"))) !== null;
  if (!isThere || !content.equals(await readFile(host))) {
    // The first one stays: another process may have a cell that is just being given it.
    const draft = join(dir, `.${randomBytes(8).toString("hex")}`);
    await writeFile(draft, content, { flag: "wx" });
    // Whatever the umask of this process.
    await chmod(draft, 0o444);
    await (isThere ? rename(draft, host) : link(draft, host).catch(nullFor("EEXIST")));
    await rm(draft, { force: true });
  }
  const { dev, ino, uid, gid } = await lstat(host, { bigint: true });
  const source = { device: String(dev), inode: String(ino), uid: Number(uid), gid: Number(gid) };
  return { path, host, source: { ...source, kind: "file" } };
}

/** Files of Corral's own for one cell, on the host. Disposing removes them. */
export interface CellFiles extends AsyncDisposable {
  readonly files: readonly OwnFile[];
  /** Adds to a file, which stays the same file: the cell sees it at once. */
  append(path: string, text: string): Promise<void>;
}

/**
 * Writes what one cell is shown of Corral's own. `texts`: by their paths in the cell. `dir`: a directory that no worker can
 * write, and that is removed if this process dies.
 */
export async function writeCellFiles(
  dir: string,
  run: string,
  texts: Readonly<Record<string, string>>,
): Promise<CellFiles> {
  if (Object.keys(texts).length === 0)
    return { files: [], append: async () => {}, [Symbol.asyncDispose]: async () => {} };
  const folder = join(dir, `${run}.files`);
  await mkdir(folder, { mode: 0o755 });
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true });
  try {
    const files: OwnFile[] = [];
    for (const [index, [path, text]] of Object.entries(texts).entries()) {
      const host = join(folder, String(index));
      await writeFile(host, text, { flag: "wx", mode: 0o644 });
      const { dev, ino, uid, gid } = await lstat(host, { bigint: true });
      const identity = { device: String(dev), inode: String(ino), uid: Number(uid), gid: Number(gid) };
      files.push({ path, host, source: { ...identity, kind: "file" } });
    }
    return { files, append: (path, text) => append(files, path, text), [Symbol.asyncDispose]: remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function append(files: readonly OwnFile[], path: string, text: string): Promise<void> {
  const file = files.find((each) => each.path === path);
  if (file === undefined) throw new RangeError(`the cell has no file of its own at ${path}`);
  await using opened = await open(file.host, constants.O_WRONLY | constants.O_APPEND | constants.O_NOFOLLOW);
  await opened.appendFile(text);
}
