import { createHash, randomUUID } from "node:crypto";
import fs from "node:fs";
import { mkdir, readdir, readFile, rename, stat, utimes } from "node:fs/promises";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { z } from "zod";
import { Descriptor } from "../files/host/descriptor.ts";
import { removeTree, runSystemProgram } from "../files/host/system-program.ts";
import { nullFor } from "../platform/errno.ts";
import { writeAtomically } from "../platform/write-file.ts";
import { holdFile, isHeld, type LockOwner, type LockWait } from "../state/file-lock.ts";
import { formatBytes } from "../text/amounts.ts";
import { BlobRefused, type BlobStore, type Digest, fillFile, inParallel, isDigest, wholeBlob } from "./blob.ts";
import {
  KnownFiles,
  parseManifest,
  type RawPath,
  TREE_LIMITS,
  type Tree,
  type TreeEntry,
  TreeRefused,
} from "./manifest.ts";

type FileEntry = Extract<TreeEntry, { type: "file" }>;

/** The number of entries after which other work of the process gets a turn. */
const SLICE = 500;

/** A user of this machine, and its group. */
export interface MirrorUser {
  readonly uid: number;
  readonly gid: number;
}

export interface MirrorParts {
  readonly known: KnownFiles;
  /** Has the content that `known` does not have. */
  readonly store: BlobStore;
  /** The owner of every entry. Undefined: Corral's own user. */
  readonly user: MirrorUser | undefined;
}

/**
 * Makes a tree in an empty directory of Corral's own. Each step goes by descriptor and makes a new entry: nothing that is there
 * is written to or followed, so that a name which the file system takes for another (by case, or by its form in Unicode) fails.
 */
async function makeMirror(tree: Tree, dir: string, from: MirrorParts, signal: AbortSignal): Promise<void> {
  using root = Descriptor.name(dir, true);
  const files: FileEntry[] = [];
  for (const [index, entry] of tree.entries.entries()) {
    if (index % SLICE === 0) await turn(signal);
    if (entry.type === "file") files.push(entry);
    else makeEntry(root, entry, from.user);
  }
  await inParallel(files, async (entry) => {
    signal.throwIfAborted();
    await makeFile(root, entry, from, signal);
  });
  if (from.user !== undefined) fs.chownSync(root.path(), from.user.uid, from.user.gid);
  // From the bottom: a directory without write permission could not be filled.
  for (const entry of tree.entries.toReversed()) if (entry.type === "directory") setMode(root, entry);
  fs.chmodSync(root.path(), tree.rootMode ?? 0o755);
}

function makeEntry(root: Descriptor, entry: TreeEntry, user: MirrorUser | undefined): void {
  using slot = slotOf(root, entry.path);
  const place = slot.folder.path(slot.name) as unknown as string;
  if (entry.type === "link") fs.symlinkSync(entry.target, place);
  else fs.mkdirSync(place, 0o700);
  if (user !== undefined) fs.lchownSync(place, user.uid, user.gid);
}

async function makeFile(
  root: Descriptor,
  entry: FileEntry,
  { known, store, user }: MirrorParts,
  signal: AbortSignal,
): Promise<void> {
  const { path, digest, bytes, mode } = entry;
  using slot = slotOf(root, path);
  using file = Descriptor.create(slot.folder.path(slot.name), 0o600);
  const isHere = bytes === 0 || (await known.fill(file, entry, signal));
  const written = isHere ? bytes : await fillFile(file, store.get(digest, bytes, signal));
  if (written !== bytes) throw new BlobRefused("mismatch", digest, `it has ${written} bytes and not ${bytes}`);
  if (user !== undefined) fs.fchownSync(file.fd, user.uid, user.gid);
  fs.fchmodSync(file.fd, mode);
}

function setMode(root: Descriptor, { path, mode }: TreeEntry): void {
  using slot = slotOf(root, path);
  using folder = slot.folder.child(slot.name, true);
  fs.chmodSync(folder.path(), mode);
}

function slotOf(root: Descriptor, path: RawPath) {
  const names = path.split("/").map((name) => Buffer.from(name, "latin1"));
  const folder = root.below(names.slice(0, -1));
  return { folder, name: names.at(-1) ?? Buffer.alloc(0), [Symbol.dispose]: () => folder[Symbol.dispose]() };
}

/**
 * Changes with every change in a directory, also one that is undone: the kernel sets the times of change, and no program can
 * choose them. Nothing is opened but directories.
 */
async function exactState(dir: string, signal: AbortSignal): Promise<string> {
  const hash = createHash("sha256");
  let looked = 0;
  const look = async (folder: Descriptor, path: string): Promise<void> => {
    for (const name of fs.readdirSync(folder.path(), { encoding: "latin1" }).sort()) {
      looked += 1;
      if (looked % SLICE === 0) await turn(signal);
      const bytes = Buffer.from(name, "latin1");
      const stats = fs.lstatSync(folder.path(bytes) as unknown as string, { bigint: true });
      hash.update(JSON.stringify([`${path}${name}`, ...factsOf(stats)]));
      if (!stats.isDirectory()) continue;
      using inner = folder.child(bytes, true);
      await look(inner, `${path}${name}/`);
    }
  };
  using root = Descriptor.name(dir, true);
  hash.update(JSON.stringify(factsOf(fs.fstatSync(root.fd, { bigint: true }))));
  await look(root, "");
  return hash.digest("hex");
}

function factsOf({ mode, size, ino, ctimeNs }: fs.BigIntStats): string[] {
  return [mode, size, ino, ctimeNs].map(String);
}

async function turn(signal: AbortSignal): Promise<void> {
  signal.throwIfAborted();
  await nextTurn();
}

export interface MirrorsOptions {
  /** A directory of Corral's own, which no other user can enter. */
  readonly dir: string;
  readonly owner: LockOwner;
  /** The owner of every entry in the mirrors. Absent: Corral's own user. */
  readonly user?: MirrorUser;
  /** Of all mirrors together, by the sizes in their manifests, and {@link ENTRY_BYTES} for each entry. */
  readonly maxBytes?: number;
}

/** A tree on this machine. Disposing says that it is not used any more: it stays, but may be removed for others. */
export interface TreeMirror extends AsyncDisposable {
  /** The directory, or the file if the tree is one. */
  readonly path: string;
  readonly tree: Tree;
}

const MAX_BYTES = 20 * 1024 ** 3;
/** What an entry counts for beside its content: an empty directory takes a block and an inode of the disk too. */
const ENTRY_BYTES = 4096;
/** Longer than a mirror takes to make. */
const WHILE_MADE: Omit<LockWait, "signal"> = { waitMs: 60 * 60_000, longestPauseMs: 200 };
const A_MOMENT: LockWait = { waitMs: 60_000, longestPauseMs: 20 };
const MAX_RECORD_BYTES = 4096;
/** Mirrors in which files of a new one are looked for: a fleet has one for each mount. */
const MAX_LOOKED_IN = 8;
const NO_TREE: Tree = { rootMode: null, entries: [], bytes: 0 };
const USE = /^([0-9a-f]{64})\.use-[0-9a-f-]{36}$/;
const UNFINISHED = ".new";
const REMOVED = ".removed-";

const record = z.strictObject({
  version: z.literal(1),
  bytes: z.number().min(0),
  entries: z.number().min(0),
  exact: z.string(),
});
type MirrorRecord = z.infer<typeof record>;

interface Stored extends MirrorRecord {
  readonly digest: Digest;
  readonly usedAt: number;
}

/**
 * Copies of trees of other machines, each made once: `DIGEST/tree/` and `DIGEST/record.json`. A mirror gets its name when it is
 * complete and on the disk. Corral shows it to cells read-only or through views, so that nothing changes it; if something did, it
 * is made again. If there is no room for another, the one that was used least recently is removed, unless a process uses it.
 */
export class Mirrors {
  readonly #dir: string;
  readonly #owner: LockOwner;
  readonly #user: MirrorUser | undefined;
  readonly #maxBytes: number;

  constructor({ dir, owner, user, maxBytes = MAX_BYTES }: MirrorsOptions) {
    this.#dir = dir;
    this.#owner = owner;
    this.#user = user;
    this.#maxBytes = maxBytes;
  }

  /**
   * The mirror of the tree with this manifest, made if it is missing. Rejects with `BlobRefused` or `TreeRefused` if the store does
   * not have what the manifest says, or the manifest is not valid; nothing is left of it then.
   */
  async open(digest: Digest, store: BlobStore, signal: AbortSignal): Promise<TreeMirror> {
    await mkdir(this.#dir, { recursive: true, mode: 0o700 });
    const manifest = await wholeBlob(store, digest, TREE_LIMITS.manifestBytes, signal);
    const tree = parseManifest(manifest);
    const use = await this.#use(digest);
    try {
      await using _ = await holdFile(join(this.#dir, `${digest}.lock`), this.#owner, { ...WHILE_MADE, signal });
      if (!(await this.#isWhole(digest, signal))) await this.#make(digest, tree, store, signal);
      const now = new Date();
      await utimes(this.#record(digest), now, now);
    } catch (error) {
      await use[Symbol.asyncDispose]();
      throw error;
    }
    const [only] = tree.entries;
    const name = tree.rootMode === null && only !== undefined ? Buffer.from(only.path, "latin1").toString() : "";
    return {
      path: join(this.#dir, digest, "tree", name),
      tree,
      [Symbol.asyncDispose]: () => use[Symbol.asyncDispose](),
    };
  }

  /** Removes what processes that died have left unfinished, and mirrors beyond the limit. */
  async sweep(): Promise<void> {
    const names = (await readdir(this.#dir).catch(nullFor("ENOENT"))) ?? [];
    await this.#forgetUsers(names);
    for (const name of names) {
      const digest = name.slice(0, 64);
      const isLeft = name.includes(REMOVED) || (name.endsWith(UNFINISHED) && !(await this.#isBeingMade(digest)));
      if (isLeft) await removeTree(join(this.#dir, name));
      // One without a valid record counts for nothing, and is never used.
      if (isDigest(name) && (await this.#stored(name)) === null) await this.#removeUnless(name, 0);
    }
    if (names.length > 0) await this.#makeRoom(0);
  }

  /** Removal takes the same lock, so a mirror that is looked for is not removed meanwhile. */
  async #use(digest: Digest): Promise<AsyncDisposable> {
    await using _ = await this.#alone();
    return await holdFile(join(this.#dir, `${digest}.use-${randomUUID()}`), this.#owner, A_MOMENT);
  }

  async #alone(): Promise<AsyncDisposable> {
    return await holdFile(join(this.#dir, "lock"), this.#owner, A_MOMENT);
  }

  async #isWhole(digest: Digest, signal: AbortSignal): Promise<boolean> {
    const found = await this.#stored(digest);
    return (
      found !== null && found.exact === (await exactState(join(this.#dir, digest, "tree"), signal).catch(() => null))
    );
  }

  async #make(digest: Digest, tree: Tree, store: BlobStore, signal: AbortSignal): Promise<void> {
    const size = sizeOf({ bytes: tree.bytes, entries: tree.entries.length });
    if (size > this.#maxBytes)
      throw new TreeRefused(
        `a directory of ${formatBytes(size)} does not fit: mirrors may have ${formatBytes(this.#maxBytes)} on this machine`,
      );
    // One that was changed; those who use it see it change no further.
    if (!(await this.#removeUnless(digest, 1)))
      throw new TreeRefused(
        `mirror ${digest.slice(0, 12)} was changed, and other processes use it. End them, and try again`,
      );
    await this.#makeRoom(size);
    const unfinished = join(this.#dir, `${digest}${UNFINISHED}`);
    await removeTree(unfinished);
    try {
      const dir = join(unfinished, "tree");
      await mkdir(dir, { recursive: true, mode: 0o700 });
      await makeMirror(
        tree,
        dir,
        { known: await this.#known(digest, tree, store, signal), store, user: this.#user },
        signal,
      );
      const made = {
        version: 1,
        bytes: tree.bytes,
        entries: tree.entries.length,
        exact: await exactState(dir, signal),
      };
      await writeAtomically(join(unfinished, "record.json"), JSON.stringify(made));
      // All of its files at once: one by one would take longer than to make them.
      if (!(await runSystemProgram("sync", ["-f", unfinished])))
        throw new Error("the program `sync` cannot flush a mirror to the disk. Install the package coreutils");
      await rename(unfinished, join(this.#dir, digest));
    } catch (error) {
      await removeTree(unfinished);
      throw error;
    }
  }

  /** What other mirrors have of a tree, those that were used last first. The manifest of an old one may be in no store any more. */
  async #known(digest: Digest, tree: Tree, store: BlobStore, signal: AbortSignal): Promise<KnownFiles> {
    const others = (await this.#all()).filter((one) => one.digest !== digest).slice(-MAX_LOOKED_IN);
    const known = await KnownFiles.of(others.length === 0 ? NO_TREE : tree, store);
    for (const { digest: other } of others.toReversed()) {
      if (!known.isMissing) break;
      const manifest = await wholeBlob(store, other, TREE_LIMITS.manifestBytes, signal).catch(() => null);
      signal.throwIfAborted();
      if (manifest !== null) known.add(parseManifest(manifest), join(this.#dir, other, "tree"));
    }
    return known;
  }

  /** Two processes may make mirrors at the same time: then the limit is exceeded until the next one. */
  async #makeRoom(bytes: number): Promise<void> {
    const stored = await this.#all();
    let total = stored.reduce((sum, one) => sum + sizeOf(one), 0);
    for (const one of stored) {
      if (total + bytes <= this.#maxBytes) return;
      if (await this.#removeUnless(one.digest, 0)) total -= sizeOf(one);
    }
    if (bytes > 0 && total + bytes > this.#maxBytes)
      throw new TreeRefused(
        `a directory of ${formatBytes(bytes)} does not fit: mirrors that are in use have ${formatBytes(total)} of ${formatBytes(this.#maxBytes)}`,
      );
  }

  /** False if more than `own` living processes use it. */
  async #removeUnless(digest: Digest, own: number): Promise<boolean> {
    const away = join(this.#dir, `${digest}${REMOVED}${randomUUID()}`);
    {
      await using _ = await this.#alone();
      if ((await stat(join(this.#dir, digest)).catch(nullFor("ENOENT"))) === null) return true;
      if ((await this.#users(digest)) > own) return false;
      if ((await rename(join(this.#dir, digest), away).then(() => true, nullFor("ENOENT"))) === null) return true;
    }
    await removeTree(away);
    return true;
  }

  async #users(digest: Digest): Promise<number> {
    let living = 0;
    for (const name of await readdir(this.#dir))
      if (USE.exec(name)?.[1] === digest && (await this.#isUsed(name))) living += 1;
    return living;
  }

  /** Those that died. */
  async #forgetUsers(names: readonly string[]): Promise<void> {
    const uses = names.filter((name) => USE.test(name));
    if (uses.length === 0) return;
    await using _ = await this.#alone();
    for (const name of uses) await this.#isUsed(name);
  }

  /** Removes what says so if that process has died. */
  async #isUsed(name: string): Promise<boolean> {
    const held = await isHeld(join(this.#dir, name), this.#owner);
    if (!held) await removeTree(join(this.#dir, name));
    return held;
  }

  /** The least recently used first. */
  async #all(): Promise<Stored[]> {
    const found = await Promise.all((await readdir(this.#dir)).filter(isDigest).map((name) => this.#stored(name)));
    return found.filter((one) => one !== null).sort((a, b) => a.usedAt - b.usedAt);
  }

  async #stored(digest: Digest): Promise<Stored | null> {
    const path = this.#record(digest);
    const stats = await stat(path).catch(nullFor("ENOENT", "ENOTDIR"));
    if (stats === null || stats.size > MAX_RECORD_BYTES) return null;
    try {
      return { digest, ...record.parse(JSON.parse(await readFile(path, "utf8"))), usedAt: stats.mtimeMs };
    } catch {
      // One that cannot be read is made again.
      return null;
    }
  }

  #record(digest: Digest): string {
    return join(this.#dir, digest, "record.json");
  }

  async #isBeingMade(digest: string): Promise<boolean> {
    return await isHeld(join(this.#dir, `${digest}.lock`), this.#owner);
  }
}

/** What a mirror takes of the room for all. */
function sizeOf({ bytes, entries }: Pick<MirrorRecord, "bytes" | "entries">): number {
  return bytes + entries * ENTRY_BYTES;
}
