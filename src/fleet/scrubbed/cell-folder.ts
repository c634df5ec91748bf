import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { basename, join } from "node:path";
import { Descriptor, isRoot } from "../../files/host/descriptor.ts";
import { removeTree } from "../../files/host/remove-tree.ts";
import type { Steward } from "../../isolation/port/driver.ts";
import { hasCode } from "../../platform/errno.ts";

/** The owner of what a worker writes. */
export interface WorkerUser {
  readonly uid: number;
  readonly gid: number;
}

const INPUT = "in";
/** A larger input is written for each item. */
const MAX_KEPT_BYTES = 64 * 1024;
const { O_RDONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = fs.constants;
const NEW = O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW;

/** Where Corral that is not root makes what comes into the cell's directories. */
const STAGED = "staged";
/** Of a directory that is to be root's: a steward knows it by this. */
const NO_ITEMS_MODE = 0o750;

/**
 * Where a serving cell's items come and go, on the host: their input and output, their attachments, and a folder in the
 * place of each writable mount. The directories themselves are root's, so that an item leaves nothing on them, not even
 * a mode or a time; their content is made for one item and removed after it.
 *
 * If Corral is not root, what it makes and reads is in directories of its own beside them, and a steward moves it from there and back.
 */
export class CellFolder implements AsyncDisposable {
  readonly path: string;
  readonly io: string;
  readonly attachments: string;
  /** In the order of the writable mounts. */
  readonly outputs: readonly string[];
  /** The same directories, where this process makes and reads their content. */
  readonly #own: { readonly io: string; readonly attachments: string; readonly outputs: readonly string[] };
  #steward: Steward | null = null;
  #another: (() => Promise<Steward>) | null = null;
  /** Something of an item is in the cell's own directories. */
  #isLaid = false;
  /** The item's streams, held open since they were made: to read them waits for no lease that it has on them. */
  readonly #printed = new Map<"out" | "err", Descriptor>();
  /** The input of the item before, if its file is still there: it is root's, so no item has changed it. */
  #input: Buffer | null = null;

  static async make(path: string, outputs: number): Promise<CellFolder> {
    const folder = new CellFolder(path, outputs);
    await mkdir(path, { mode: 0o700 });
    const { io, attachments, outputs: own } = folder.#own;
    const staged = isRoot() ? [] : [join(path, STAGED), io, attachments, ...own];
    for (const dir of [folder.io, folder.attachments, ...folder.outputs, ...staged]) await mkdir(dir, { mode: 0o755 });
    return folder;
  }

  private constructor(path: string, outputs: number) {
    this.path = path;
    this.io = join(path, "io");
    this.attachments = join(path, "attachments");
    this.outputs = Array.from({ length: outputs }, (_, index) => join(path, `out-${index}`));
    const own = (dir: string): string => (isRoot() ? dir : join(path, STAGED, basename(dir)));
    this.#own = { io: own(this.io), attachments: own(this.attachments), outputs: this.outputs.map(own) };
  }

  /** The plan takes the owner of what can be written for the cell's user. */
  lendOutputsTo({ uid, gid }: WorkerUser): void {
    if (isRoot()) for (const dir of this.outputs) fs.chownSync(dir, uid, gid);
  }

  /** Before the first item: from then on only Corral makes entries in these directories themselves. */
  async takeOutputsBack(startSteward: (dirs: readonly string[]) => Promise<Steward>): Promise<void> {
    if (!isRoot()) {
      this.#another = () => startSteward(this.outputs.map((dir) => basename(dir)));
      this.#steward = await this.#another();
      await this.#steward.act("begin");
      return;
    }
    for (const dir of this.outputs) {
      fs.chownSync(dir, 0, 0);
      fs.chmodSync(dir, 0o755);
    }
  }

  /** All that an item brings has been made: it is in the cell now. */
  async lay(): Promise<void> {
    this.#isLaid = true;
    await this.#steward?.act("lay");
  }

  /** No process of the item is left: what it left can be read. */
  async take(): Promise<void> {
    await this.#steward?.act("take");
    this.#isLaid = false;
  }

  /** The files that the command's three streams are. That of the input stays if the next item has the same, and is as if it were new. */
  layStreams(input: Uint8Array, user: WorkerUser): void {
    const path = join(this.#own.io, INPUT);
    if (this.#input?.equals(input)) fs.utimesSync(path, new Date(), new Date());
    else {
      if (this.#input !== null) fs.unlinkSync(path);
      this.#input = null;
      fs.writeFileSync(path, input, { flag: "wx", mode: 0o444 });
      if (!isRoot()) fs.chmodSync(path, 0o444);
      if (isRoot() && input.length <= MAX_KEPT_BYTES) this.#input = Buffer.from(input);
    }
    for (const name of ["out", "err"] as const) this.#newStream(name, user);
  }

  /** What the command printed, and one byte more if there is more than `most`. */
  printed(name: "out" | "err", most: number): Buffer {
    const fd = this.#printed.get(name)?.fd;
    if (fd === undefined) throw new Error("no item was laid out in this cell");
    const size = Math.min(fs.fstatSync(fd).size, most + 1);
    const bytes = Buffer.alloc(size);
    return size === 0 ? bytes : bytes.subarray(0, fs.readSync(fd, bytes, 0, size, 0));
  }

  /** A new file for one item's attachment, open for writing. Fails with EEXIST if the item has one of this name. */
  newAttachment(name: string): Descriptor {
    return Descriptor.create(join(this.#own.attachments, name), 0o600);
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
      if (!isRoot()) fs.chmodSync(path, isLast ? 0o755 : NO_ITEMS_MODE);
    }
  }

  outputAt(index: number, parts: readonly string[]): string {
    const path = this.#own.outputs[index];
    if (path === undefined) throw new RangeError("there is no such writable mount");
    return join(path, ...parts);
  }

  /** Removes everything of an item. Quick if there is little, which is nearly always so. */
  async clear(): Promise<void> {
    this.#closeStreams();
    if (this.#isLaid) await this.#steward?.act("take");
    this.#isLaid = false;
    const { io, attachments, outputs } = this.#own;
    for (const dir of [io, attachments, ...outputs]) {
      try {
        const remove = outputs.includes(dir) ? fs.rmdirSync : fs.unlinkSync;
        for (const name of fs.readdirSync(dir, { encoding: "buffer" }))
          if (dir !== io || this.#input === null || name.toString("latin1") !== INPUT)
            removeEntry(Buffer.concat([Buffer.from(`${dir}/`), name]), remove);
      } catch (cause) {
        await removeTree(dir);
        throw new Error("a serving cell's folder could not be emptied", { cause });
      }
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closeStreams();
    try {
      await this.#steward?.[Symbol.asyncDispose]();
      await removeTree(this.path);
    } catch (error) {
      if (this.#another === null) throw error;
      // The steward may have been ended by someone else, before it gave the directories back.
      const another = await this.#another();
      await another[Symbol.asyncDispose]();
      await removeTree(this.path);
    }
  }

  #newStream(name: "out" | "err", { uid, gid }: WorkerUser): void {
    const file = new Descriptor(fs.openSync(join(this.#own.io, name), NEW, 0o600));
    this.#printed.set(name, file);
    if (isRoot()) fs.fchownSync(file.fd, uid, gid);
  }

  #closeStreams(): void {
    for (const file of this.#printed.values()) file[Symbol.dispose]();
    this.#printed.clear();
  }
}

/** `remove`: what is enough for an entry as Corral made it. */
function removeEntry(path: Buffer, remove: (path: Buffer) => void): void {
  try {
    remove(path);
  } catch {
    fs.rmSync(path, { recursive: true, force: true });
  }
}
