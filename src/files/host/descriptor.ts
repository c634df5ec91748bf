import fs from "node:fs";
import { readFile } from "node:fs/promises";
import { hasCode } from "../../platform/errno.ts";
import type { Mount } from "../../sandbox/mount.ts";
import { covers, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { type FileOperation, unfit } from "../model/refusals.ts";
import { runSystemProgram } from "./system-program.ts";

/** Linux's O_PATH names a file without opening it, so that a FIFO or a device is not affected. */
const O_PATH = 0o10000000;
const { O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_WRONLY, O_CREAT, O_EXCL } = fs.constants;

/**
 * A descriptor of this process. It identifies one file, whatever any path says later (docs/architecture.md,
 * fact: open-by-descriptor).
 *
 * Names are worked on with synchronous calls: each takes microseconds and never waits for a worker, since nothing but
 * regular files is ever opened, and never where a lease would have to be broken first. A descriptor is held for a moment
 * only. Content is read and written asynchronously.
 */
export class Descriptor implements Disposable {
  readonly fd: number;
  #open = true;

  constructor(fd: number) {
    this.fd = fd;
  }

  /** Names the entry at `path`. A link in the last component is named itself. */
  static name(path: string | Buffer, directory = false): Descriptor {
    return new Descriptor(fs.openSync(path, O_PATH | O_NOFOLLOW | (directory ? O_DIRECTORY : 0)));
  }

  /** Makes a new file, open for writing. Fails with EEXIST if the name is taken, be it by a link. */
  static create(path: string | Buffer, mode: number): Descriptor {
    return new Descriptor(fs.openSync(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode));
  }

  /** This file, or a name in this directory, as a path that leads through the descriptor. */
  path(): string;
  path(name: string): string;
  path(name: Buffer): Buffer;
  path(name: string | Buffer): string | Buffer;
  path(name?: string | Buffer): string | Buffer {
    if (name === undefined) return `/proc/self/fd/${this.fd}`;
    if (typeof name === "string") return `/proc/self/fd/${this.fd}/${name}`;
    return Buffer.concat([Buffer.from(`/proc/self/fd/${this.fd}/`), name]);
  }

  /** Names an entry of this directory; a link itself is named, not followed. `name` is one component. */
  child(name: string | Buffer, directory = false): Descriptor {
    return Descriptor.name(this.path(name), directory);
  }

  /** The same for a directory; null if there is none, or it was replaced in the meantime. */
  childFolder(name: string | Buffer): Descriptor | null {
    try {
      return this.child(name, true);
    } catch (error) {
      if (hasCode(error, "ENOENT", "ENOTDIR", "ELOOP")) return null;
      throw error;
    }
  }

  /** The directory below this one that `names` lead to, through no link. Fails with ENOENT or ENOTDIR, or as `check` fails. */
  below(names: Iterable<string | Buffer>, check?: (step: Descriptor) => void): Descriptor {
    let current = this.again();
    try {
      for (const name of names) {
        const next = current.child(name, true);
        current[Symbol.dispose]();
        current = next;
        check?.(current);
      }
      return current;
    } catch (error) {
      current[Symbol.dispose]();
      throw error;
    }
  }

  /** A second descriptor that names the same file. */
  again(): Descriptor {
    return this.reopen(O_PATH);
  }

  /**
   * The same file, opened with `flags`. It cannot become another file in between. Fails with EAGAIN if another program has a
   * lease on it: without O_NONBLOCK the kernel would wait up to 45 s for that program.
   */
  reopen(flags: number): Descriptor {
    return new Descriptor(fs.openSync(this.path(), flags | O_NONBLOCK));
  }

  /** The same directory, opened for reading. This descriptor is closed. */
  reopenFolder(): Descriptor {
    try {
      return this.reopen(fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
    } finally {
      this[Symbol.dispose]();
    }
  }

  /** Whether this process may make entries in this directory, or write this file. */
  isWritable(): boolean {
    const { W_OK, X_OK } = fs.constants;
    try {
      fs.accessSync(this.path(), this.stat().isDirectory() ? W_OK | X_OK : W_OK);
      return true;
    } catch (error) {
      if (hasCode(error, "EACCES", "EPERM", "EROFS")) return false;
      throw error;
    }
  }

  stat(): fs.Stats {
    return fs.fstatSync(this.fd);
  }

  /** `device:inode`. */
  identity(): string {
    const { dev, ino } = fs.fstatSync(this.fd, { bigint: true });
    return `${dev}:${ino}`;
  }

  [Symbol.dispose](): void {
    if (!this.#open) return;
    this.#open = false;
    fs.closeSync(this.fd);
  }
}

/** Only root can give files to other users. */
export function isRoot(): boolean {
  return process.geteuid?.() === 0;
}

/** A mount's place on the host, held open as a cell's mount holds it. */
export interface Root {
  readonly path: VirtualPath;
  readonly descriptor: Descriptor;
  /** False for a mount that is a single file. */
  readonly directory: boolean;
  /** The mounts strictly below. They hide what the disk has there. */
  readonly hidden: readonly VirtualPath[];
  /** Its host path, if absolute links to it and below it are followed; null: none is. */
  readonly linkedAs: string | null;
}

export interface Roots extends Disposable {
  get(operation: FileOperation, path: VirtualPath): Root;
}

/** A mount to open. `identity`: if given, it must be this file, as `device:inode`. */
export type HostMount = Pick<Mount, "path" | "host"> & { readonly identity?: string };

/** Opens every mount. One that cannot be opened refuses its own operations; the others work. `absoluteLinks`: see {@link Root.linkedAs}. */
export function openRoots(mounts: readonly HostMount[], absoluteLinks = false): Roots {
  const roots = new Map<VirtualPath, Root | null>();
  for (const { path, host, identity } of mounts) {
    const hidden = mounts.map((other) => other.path).filter((other) => other !== path && covers(path, other));
    const descriptor = identified(pinned(host), identity);
    const linkedAs = absoluteLinks ? host : null;
    const directory = descriptor?.stat().isDirectory() ?? false;
    roots.set(path, descriptor === null ? null : { path, descriptor, directory, hidden, linkedAs });
  }
  return {
    get: (operation, path) => {
      const root = roots.get(path);
      if (root === undefined) throw new RangeError(`there is no mount at ${path}`);
      if (root === null) throw unfit(operation, path, "the granted directory cannot be opened on this machine.");
      return root;
    },
    [Symbol.dispose]: () => {
      for (const root of roots.values()) root?.descriptor[Symbol.dispose]();
    },
  };
}

function identified(descriptor: Descriptor | null, identity: string | undefined): Descriptor | null {
  if (descriptor === null || identity === undefined || descriptor.identity() === identity) return descriptor;
  descriptor[Symbol.dispose]();
  return null;
}

/** Opens a host path from `/` on, never through a link: it had no links when it was declared, so one was planted since. */
export function pinned(host: string): Descriptor | null {
  const parts = host.split("/").filter((part) => part !== "");
  try {
    using top = Descriptor.name("/", true);
    using folder = top.below(parts.slice(0, -1));
    const found = folder.child(parts.at(-1) ?? ".");
    const stats = found.stat();
    if (stats.isDirectory() || stats.isFile()) return found;
    found[Symbol.dispose]();
  } catch (error) {
    if (!(error instanceof Error && "syscall" in error)) throw error;
  }
  return null;
}

/** Unmounts everything at or below a directory of Corral's own, innermost first, so that the directory can be removed. False: something of it is still used. */
export async function detachMountsBelow(dir: string): Promise<boolean> {
  const text = await readFile("/proc/self/mountinfo", "utf8").catch(() => "");
  const below = text
    .split("\n")
    .map((line) => decodedMountField(line.split(" ")[4] ?? ""))
    .filter((path) => path === dir || path.startsWith(`${dir}/`));
  let isWhole = true;
  for (const path of below.toReversed()) isWhole = (await detachMount(path)) && isWhole;
  return isWhole;
}

/** Unmounts one mount. One that is still in use is detached: it disappears now, and ends when its last user closes it; false then. */
export async function detachMount(path: string): Promise<boolean> {
  if (await runSystemProgram("umount", ["-i", path])) return true;
  await runSystemProgram("umount", ["-i", "-l", path]);
  return false;
}

/** Decodes a field of mountinfo, in which spaces, tabs, newlines and backslashes are written as `\ooo` (proc(5)). */
export function decodedMountField(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}

/**
 * Identifies the mount of a descriptor (proc(5), `fdinfo`). The device number is not enough: a bind mount inside of a
 * directory can have the same device, and one overlay shows files of several devices.
 */
export function mountIdOf({ fd }: Descriptor): string {
  const text = fs.readFileSync(`/proc/self/fdinfo/${fd}`, "utf8");
  const id = /^mnt_id:\s*(\d+)$/m.exec(text)?.[1];
  if (id === undefined) throw new Error("the kernel reports no mount id for a descriptor");
  return id;
}
