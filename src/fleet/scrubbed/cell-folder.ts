import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { Descriptor } from "../../files/host/descriptor.ts";
import { removeTree } from "../../files/host/remove-tree.ts";
import { hasCode } from "../../platform/errno.ts";

/** The owner of what a worker writes. */
export interface WorkerUser {
  readonly uid: number;
  readonly gid: number;
}

/**
 * Where a serving cell's items come and go, on the host: their input and output, their attachments, and a folder in the
 * place of each writable mount. The directories themselves are root's, so that an item leaves nothing on them, not even
 * a mode or a time; their content is made for one item and removed after it.
 */
export class CellFolder implements AsyncDisposable {
  readonly path: string;
  readonly io: string;
  readonly attachments: string;
  /** In the order of the writable mounts. */
  readonly outputs: readonly string[];

  static async make(path: string, outputs: number): Promise<CellFolder> {
    const folder = new CellFolder(path, outputs);
    await mkdir(path, { mode: 0o700 });
    for (const dir of [folder.io, folder.attachments, ...folder.outputs]) await mkdir(dir, { mode: 0o755 });
    return folder;
  }

  private constructor(path: string, outputs: number) {
    this.path = path;
    this.io = join(path, "io");
    this.attachments = join(path, "attachments");
    this.outputs = Array.from({ length: outputs }, (_, index) => join(path, `out-${index}`));
  }

  /** The plan takes the owner of what can be written for the cell's user. */
  lendOutputsTo({ uid, gid }: WorkerUser): void {
    for (const dir of this.outputs) fs.chownSync(dir, uid, gid);
  }

  /** Before the first item: from then on only Corral makes entries in these directories themselves. */
  takeOutputsBack(): void {
    for (const dir of this.outputs) {
      fs.chownSync(dir, 0, 0);
      fs.chmodSync(dir, 0o755);
    }
  }

  /** The files that the command's three streams are, made anew. */
  layStreams(input: Uint8Array, { uid, gid }: WorkerUser): void {
    for (const name of ["in", "out", "err"]) fs.rmSync(join(this.io, name), { force: true });
    fs.writeFileSync(join(this.io, "in"), input, { flag: "wx", mode: 0o444 });
    for (const name of ["out", "err"]) {
      using file = new Descriptor(fs.openSync(join(this.io, name), "wx", 0o600));
      fs.fchownSync(file.fd, uid, gid);
    }
  }

  /** What the command printed, and one byte more if there is more than `most`. */
  printed(name: "out" | "err", most: number): Buffer {
    const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = fs.constants;
    // Does not wait for a process that still holds a lease on it, which is possible if the Engine lost its cell.
    using file = new Descriptor(fs.openSync(join(this.io, name), O_RDONLY | O_NOFOLLOW | O_NONBLOCK));
    const size = Math.min(file.stat().size, most + 1);
    const bytes = Buffer.alloc(size);
    const read = fs.readSync(file.fd, bytes, 0, size, 0);
    return bytes.subarray(0, read);
  }

  /** A folder for one item in the place of a writable mount; `parts` lead to it. */
  makeOutput(index: number, parts: readonly string[], { uid, gid }: WorkerUser): void {
    let path = this.outputAt(index, []);
    for (const [at, part] of parts.entries()) {
      path = join(path, part);
      const isLast = at === parts.length - 1;
      try {
        fs.mkdirSync(path, 0o755);
      } catch (error) {
        if (isLast || !hasCode(error, "EEXIST")) throw error;
      }
      if (isLast) fs.chownSync(path, uid, gid);
    }
  }

  outputAt(index: number, parts: readonly string[]): string {
    const path = this.outputs[index];
    if (path === undefined) throw new RangeError("there is no such writable mount");
    return join(path, ...parts);
  }

  /** Removes everything of an item. Quick if there is little, which is nearly always so. */
  async clear(): Promise<void> {
    for (const dir of [this.io, this.attachments, ...this.outputs]) {
      for (const name of fs.readdirSync(dir, { encoding: "buffer" })) {
        const path = Buffer.concat([Buffer.from(`${dir}/`), name]);
        try {
          fs.rmSync(path, { recursive: true, force: true });
        } catch (cause) {
          await removeTree(dir);
          throw new Error("a serving cell's folder could not be emptied", { cause });
        }
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await removeTree(this.path);
  }
}
