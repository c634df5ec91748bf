import fs from "node:fs";

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
