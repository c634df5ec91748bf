import fs from "node:fs";
import { mkdir } from "node:fs/promises";
import { basename, join, posix } from "node:path";
import { linkTextFault } from "../../changes/model/changeset.ts";
import { contentOf, copyContent } from "../../files/host/content.ts";
import { Descriptor, isRoot } from "../../files/host/descriptor.ts";
import { type HeldFolders, openSlot, type Slot } from "../../files/host/folder.ts";
import { removeTree } from "../../files/host/system-program.ts";
import { unfit } from "../../files/model/refusals.ts";
import type { Steward } from "../../isolation/port/driver.ts";
import { hasCode } from "../../platform/errno.ts";
import { whyHostExecuted } from "../../sandbox/host-executed.ts";
import type { VirtualPath } from "../../sandbox/virtual-path.ts";
import { shellWord } from "../../text/visible.ts";
import type { ItemOutput } from "./shape.ts";

/** The owner of what a worker writes. */
export interface WorkerUser {
  readonly uid: number;
  readonly gid: number;
}

const INPUT = "in";
/** Lines of shell that make variables of the input. */
const VARIABLES = "env";
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
  /** The input of the item before, if its files are still there: they are root's, so no item has changed them. */
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

  /**
   * The files that the command's three streams are, and its variables. Those of the input stay if the next item has the same, and are as if
   * they were new.
   */
  layStreams(input: Uint8Array, variables: Readonly<Record<string, string>>, user: WorkerUser): void {
    const paths = [INPUT, VARIABLES].map((name) => join(this.#own.io, name));
    if (this.#input?.equals(input)) for (const path of paths) fs.utimesSync(path, new Date(), new Date());
    else {
      if (this.#input !== null) for (const path of paths) fs.unlinkSync(path);
      this.#input = null;
      const lines = Object.entries(variables).map(([name, value]) => `export ${name}=${shellWord(value)}\n`);
      for (const [index, content] of [input, lines.join("")].entries()) {
        const path = paths[index] ?? "";
        fs.writeFileSync(path, content, { flag: "wx", mode: 0o444 });
        if (!isRoot()) fs.chmodSync(path, 0o444);
      }
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
          if (dir !== io || this.#input === null || ![INPUT, VARIABLES].includes(name.toString("latin1")))
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

/** The most files and folders that one item may leave, and the deepest. */
const MAX_ENTRIES = 10_000;
const MAX_DEPTH = 64;

export interface BroughtBack {
  /** Why nothing was brought back; null if all was. */
  readonly refusal: { readonly path: string; readonly reason: string } | null;
  readonly bytes: number;
}

/** What an item left under one name. Nothing changes it any more. */
interface Left {
  readonly name: string;
  readonly stats: fs.Stats;
  /** Of a folder. */
  readonly content: readonly Left[];
}

/**
 * Moves what an item left in its folder to its destination. No process can write there any more, so it is judged first and
 * then moved: regular files, folders, and links that stay inside. If anything else is found, nothing is moved.
 */
export async function bringBack(
  from: string,
  { base, parts, path, allowsHostExecuted }: ItemOutput,
  maxBytes: number,
  held: HeldFolders,
): Promise<BroughtBack> {
  using source = Descriptor.name(from, true);
  if (!isRoot()) fs.chmodSync(source.path(), 0o755);
  const judge = new Judge(path, maxBytes, allowsHostExecuted ? null : [base.host, ...parts].join("/"));
  const left = judge.folder(source, []);
  if (left === null) return { refusal: judge.refusal, bytes: 0 };
  if (left.length > 0) await moveInto({ path: from, source }, left, { base, parts, path }, held);
  return { refusal: null, bytes: judge.bytes };
}

class Judge {
  refusal: BroughtBack["refusal"] = null;
  bytes = 0;
  #entries = 0;
  readonly #path: VirtualPath;
  readonly #maxBytes: number;

  readonly #host: string | null;

  /** `host`: its place on the host, if what is executed there is refused. */
  constructor(path: VirtualPath, maxBytes: number, host: string | null) {
    this.#path = path;
    this.#maxBytes = maxBytes;
    this.#host = host;
  }

  /** Null if something there is refused. */
  folder(folder: Descriptor, parts: readonly string[]): Left[] | null {
    const left: Left[] = [];
    for (const raw of fs.readdirSync(folder.path(), { encoding: "buffer" })) {
      const name = raw.toString("utf8");
      const at = [...parts, name];
      const refuse = (reason: string): null => {
        this.refusal = { path: posix.join(this.#path, ...at), reason };
        return null;
      };
      this.#entries += 1;
      if (!Buffer.from(name).equals(raw)) return refuse("its name is not UTF-8");
      if (this.#entries > MAX_ENTRIES) return refuse(`there are more than ${MAX_ENTRIES} files and folders`);
      if (at.length > MAX_DEPTH) return refuse(`it is deeper than ${MAX_DEPTH} levels`);
      const stats = fs.lstatSync(folder.path(name));
      const reason = this.#reasonAgainst(stats, folder, name, parts);
      if (reason !== null) return refuse(reason);
      const content = stats.isDirectory() ? this.#inner(folder, name, at) : [];
      if (content === null) return null;
      left.push({ name, stats, content });
    }
    return left;
  }

  #inner(folder: Descriptor, name: string, at: readonly string[]): Left[] | null {
    using inner = folder.child(name, true);
    // Only root can read a folder that its owner has closed.
    if (!isRoot()) fs.chmodSync(inner.path(), inner.stat().mode | 0o700);
    return this.folder(inner, at);
  }

  #reasonAgainst(stats: fs.Stats, folder: Descriptor, name: string, parts: readonly string[]): string | null {
    if (stats.isDirectory()) return null;
    const kind = stats.isSymbolicLink() ? "link" : "file";
    const why = this.#host === null ? null : whyHostExecuted([this.#host, ...parts, name].join("/"), kind);
    if (why !== null) return `${why}, and no person is asked about an item of a shared cell. Use \`reuse: fresh\``;
    if (stats.isSymbolicLink()) return linkTextFault(fs.readlinkSync(folder.path(name)), parts.length);
    if (!stats.isFile()) return "it is not a file, a directory or a link";
    if ((stats.mode & 0o6000) !== 0) return "it is setuid or setgid: it would run as its owner or group";
    this.bytes += stats.size;
    return this.bytes > this.#maxBytes ? "it exceeds the disk limit" : null;
  }
}

/** Into the item's own folder, which is opened without following links and made if it is missing. */
async function moveInto(
  from: { readonly path: string; readonly source: Descriptor },
  left: readonly Left[],
  { base, parts, path }: Pick<ItemOutput, "base" | "parts" | "path">,
  held: HeldFolders,
): Promise<void> {
  const descriptor = held.folder(base.host);
  if (descriptor === null) throw unfit("write", base.path, "the granted directory cannot be opened on this machine.");
  const root = { path: base.path, descriptor, directory: true, hidden: [], linkedAs: null };
  using slot = openSlot("write", root, { path, mount: base.path, parts }, true);
  if (isMovedWhole(from, slot)) return;
  const { source } = from;
  const isNew = madeFolder(slot, source);
  using target = slot.folder.child(slot.name, true);
  await moveAll(source, left, target, isNew);
}

/** False if something is there already, or the folder is on another file system. Above its name are only folders of root. */
function isMovedWhole({ path, source }: { readonly path: string; readonly source: Descriptor }, slot: Slot): boolean {
  const target = slot.folder.path(slot.name);
  if (fs.lstatSync(target, { throwIfNoEntry: false }) !== undefined) return false;
  fs.chmodSync(source.path(), 0o755);
  try {
    fs.renameSync(path, target);
    return true;
  } catch (error) {
    if (!hasCode(error, "EXDEV", "EEXIST", "ENOTEMPTY", "ENOTDIR")) throw error;
    return false;
  }
}

/** False if something is there. */
function madeFolder({ folder, name }: Slot, source: Descriptor): boolean {
  try {
    fs.mkdirSync(folder.path(name), 0o755);
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error;
    return false;
  }
  const { uid, gid } = source.stat();
  if (isRoot()) fs.lchownSync(folder.path(name), uid, gid);
  return true;
}

/** `isNew`: the target was made for this, and nothing can be in the way. */
async function moveAll(source: Descriptor, left: readonly Left[], target: Descriptor, isNew: boolean): Promise<void> {
  for (const { name, stats, content } of left) {
    const mayMerge = !isNew && stats.isDirectory();
    if (mayMerge && fs.lstatSync(target.path(name), { throwIfNoEntry: false })?.isDirectory()) {
      using from = source.child(name, true);
      using to = target.child(name, true);
      await moveAll(from, content, to, false);
    } else await moveOne(source, target, { name, stats, content });
  }
}

/** Atomic if both are on one file system: a reader sees the old file or the new one. */
async function moveOne(source: Descriptor, target: Descriptor, { name, stats, content }: Left): Promise<void> {
  try {
    fs.renameSync(source.path(name), target.path(name));
    return;
  } catch (error) {
    if (!hasCode(error, "EXDEV")) throw error;
  }
  const temporary = target.path(`.corral-unfinished-${crypto.randomUUID()}`);
  if (stats.isDirectory()) {
    fs.mkdirSync(temporary, 0o755);
    using from = source.child(name, true);
    using to = new Descriptor(fs.openSync(temporary, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY));
    await moveAll(from, content, to, true);
    fs.fchownSync(to.fd, stats.uid, stats.gid);
    fs.fchmodSync(to.fd, stats.mode & 0o777);
  } else if (stats.isSymbolicLink()) {
    fs.symlinkSync(fs.readlinkSync(source.path(name)), temporary);
    fs.lchownSync(temporary, stats.uid, stats.gid);
  } else {
    using named = source.child(name);
    using from = named.reopen(fs.constants.O_RDONLY);
    using to = Descriptor.create(temporary, 0o600);
    await copyContent(contentOf(from), to);
    fs.fchownSync(to.fd, stats.uid, stats.gid);
    fs.fchmodSync(to.fd, stats.mode & 0o777);
  }
  fs.renameSync(temporary, target.path(name));
}
