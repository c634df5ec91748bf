import { isUtf8 } from "node:buffer";
import { basename, dirname, join } from "node:path/posix";
import { hasCode } from "../../platform/errno.ts";
import { sha256 } from "../../platform/sha256.ts";
import { NotFoundError } from "../../sandbox/errors.ts";
import { covers, joinVirtual, type VirtualPath } from "../../sandbox/virtual-path.ts";
import { formatBytes } from "../../text/amounts.ts";
import { editedContent } from "../edit/edited-content.ts";
import { ListingDraft } from "../list/listing.ts";
import {
  contentBytes,
  type DeleteOptions,
  type FileInfo,
  type Files,
  holdsMount,
  type Listing,
  type ListOptions,
  type Looked,
  type LookOptions,
  MAX_EDIT_BYTES,
  MAX_MEMORY_BYTES,
  MAX_TREE_DEPTH,
  MAX_TREE_ENTRIES,
  type Place,
  type TransferOptions,
  type Transferred,
} from "../model/files.ts";
import {
  BELOW_FILE,
  CHANGED,
  type FileOperation,
  HOLDS_MOUNT,
  IS_DIRECTORY,
  IS_MOUNT,
  intoItself,
  NOT_DIRECTORY,
  NOT_EMPTY,
  SAME_PLACE,
  TAKEN,
  tooLargeText,
  unfit,
  withRefusals,
} from "../model/refusals.ts";
import { type ByteSource, readContent } from "../read/read-text.ts";

/**
 * Where the files of a sandbox are, if not in the directories of this host: any store with these operations. Each path is absolute and
 * normal, and is one of a mount's `host` or below it. An error with a `code` and a `syscall`, as Node's are, becomes a refusal in words.
 *
 * What a link means is the store's own: only the host's files are guarded against links that lead out.
 */
export interface FileBackend {
  /** Rejects for a directory, and if nothing is there. */
  read(path: string): Promise<string | Uint8Array>;
  /** The directory of the file exists. */
  write(path: string, content: string | Uint8Array): Promise<void>;
  /** A file, or a directory with nothing in it. */
  delete(path: string): Promise<void>;
  exists(path: string): Promise<boolean>;
  /** The names in a directory. */
  list(path: string): Promise<readonly string[]>;
  /** With the directories above it. */
  mkdir(path: string): Promise<void>;
  /** Null if nothing is there. Absent: it is found out by reading. */
  stat?(path: string): Promise<BackendEntry | null>;
}

export interface BackendEntry {
  readonly type: "file" | "directory";
  /** In bytes; of a directory it does not matter. */
  readonly size: number;
  /** Absent: not known. */
  readonly modifiedMs?: number;
}

interface MemoryEntry {
  /** The names in it; null for a file. */
  readonly names: Set<string> | null;
  readonly content: Buffer;
  readonly modifiedMs: number;
}

/** Files in the memory of this process, with content of at most `MAX_MEMORY_BYTES`. */
export function memoryBackend(): FileBackend {
  const entries = new Map<string, MemoryEntry>();
  let held = 0;
  const put = (path: string, names: Set<string> | null, content: Buffer): void => {
    entries.set(path, { names, content, modifiedMs: Date.now() });
    if (path !== "/") entries.get(dirname(path))?.names?.add(basename(path));
  };
  return {
    async read(path) {
      const found = entries.get(path);
      if (found === undefined || found.names !== null) throw failure(found === undefined ? "ENOENT" : "EISDIR");
      return Buffer.from(found.content);
    },
    async write(path, given) {
      const content = Buffer.from(given);
      const grown = held + content.length - (entries.get(path)?.content.length ?? 0);
      if (grown > MAX_MEMORY_BYTES) throw new MemoryFullError();
      held = grown;
      put(path, null, content);
    },
    async delete(path) {
      held -= entries.get(path)?.content.length ?? 0;
      entries.delete(path);
      entries.get(dirname(path))?.names?.delete(basename(path));
    },
    exists: async (path) => entries.has(path),
    list: async (path) => [...(entries.get(path)?.names ?? [])],
    async mkdir(path) {
      const missing: string[] = [];
      for (let at = path; !entries.has(at); at = dirname(at)) {
        missing.push(at);
        if (at === "/") break;
      }
      for (const at of missing.reverse()) put(at, new Set(), NO_CONTENT);
    },
    async stat(path) {
      const found = entries.get(path);
      if (found === undefined) return null;
      const { names, content, modifiedMs } = found;
      return { type: names === null ? "file" : "directory", size: content.length, modifiedMs };
    },
  };
}

const NO_CONTENT = Buffer.alloc(0);

/** As Node's own errors are. */
function failure(code: "EISDIR" | "ENOENT"): Error {
  return Object.assign(new Error(code), { code, syscall: "memory" });
}

class MemoryFullError extends Error {
  constructor() {
    super(`the files in memory would hold more than ${formatBytes(MAX_MEMORY_BYTES)}. Write less, or delete files.`);
  }
}

/** What is at a path of a store that cannot say it itself. */
async function entryByReading(backend: FileBackend, path: string): Promise<BackendEntry | null> {
  if (!(await backend.exists(path))) return null;
  try {
    return { type: "file", size: Buffer.from(await backend.read(path)).length };
  } catch (error) {
    if (hasCode(error, "ENOENT")) return null;
    await backend.list(path);
    return { type: "directory", size: 0 };
  }
}

/**
 * Files in a store of the caller's, with the refusals of the host's files. The same contract tests run against both. The store is expected to be
 * changed by this process alone, one operation after another.
 */
export function openBackendFiles(
  backend: FileBackend,
  mounts: readonly { readonly path: VirtualPath; readonly host: string }[],
): Files {
  const tree = new BackendTree(backend, mounts);
  const on =
    (operation: FileOperation) =>
    <T>(place: Place, work: () => Promise<T>): Promise<T> =>
      withRefusals(operation, place.path, work);
  const put = async (
    operation: "write" | "append",
    place: Place,
    content: string | Uint8Array,
    { checks, overwrite = true, expected }: TransferOptions,
  ) => {
    const { length: bytes } = contentBytes(content);
    checks?.write?.(place.path, bytes);
    const { there } = await tree.slot(operation, place, true);
    if (there?.type === "directory") throw unfit(operation, place.path, IS_DIRECTORY);
    if (there !== null && !overwrite) throw unfit(operation, place.path, TAKEN);
    if (expected?.to !== undefined) await tree.refuseChanged(operation, place, expected.to);
    await tree.put(operation, place, content);
    return { bytes, created: there === null };
  };
  return {
    read: (place, options = {}) =>
      on("read")(place, async () => {
        const bytes = await tree.file("read", place);
        options.checks?.read?.(place.path, bytes.length);
        return await readContent(sourceOf(bytes), place.path, options);
      }),
    bytes: (place, { maxBytes, checks }) =>
      on("read")(place, async () => {
        const bytes = await tree.file("read", place);
        checks?.read?.(place.path, bytes.length);
        if (bytes.length > maxBytes) throw unfit("read", place.path, tooLargeText(bytes.length, maxBytes));
        return bytes;
      }),
    write: (place, content, options = {}) => on("write")(place, () => put("write", place, content, options)),
    append: (place, content, options = {}) =>
      on("append")(place, async () => {
        const { there } = await tree.slot("append", place, true);
        const before = there === null ? Buffer.alloc(0) : await tree.file("append", place);
        const whole = Buffer.concat([before, contentBytes(content)]);
        return await put(
          "append",
          place,
          typeof content === "string" && isUtf8(whole) ? whole.toString() : whole,
          options,
        );
      }),
    edit: (place, edits, options = {}) =>
      on("edit")(place, async () => {
        const before = await tree.file("edit", place);
        options.checks?.read?.(place.path, before.length);
        const { bytes, replacements } = await editedContent(sourceOf(before), place.path, edits);
        await put("write", place, Buffer.from(bytes).toString(), options);
        return { bytes: bytes.length, replacements };
      }),
    delete: (place, options = {}) => on("delete")(place, () => remove(tree, place, options)),
    move: (from, to, options = {}) => on("move")(from, () => transfer(tree, "move", { from, to }, options)),
    copy: (from, to, options = {}) => on("copy")(from, () => transfer(tree, "copy", { from, to }, options)),
    mkdir: (place) => on("mkdir")(place, () => tree.folder("mkdir", place, place.parts, true)),
    exists: (place) =>
      on("exists")(place, async () => {
        const ways = place.parts.map((_, index) => tree.at(place, place.parts.slice(0, index)));
        const above = await Promise.all(ways);
        return above.every((each) => each?.type === "directory") && (await tree.at(place)) !== null;
      }),
    stat: (place) => on("stat")(place, async () => infoOf(place, await tree.entry("stat", place))),
    list: (place, options = {}) => on("list")(place, () => listed(tree, place, options)),
    look: (place, options) => on(options.operation)(place, () => lookedAt(tree, place, options)),
    resolve: (place) =>
      on("stat")(place, async () => {
        await tree.folder("stat", place, place.parts.slice(0, -1), false).catch(notThere);
        return place.path;
      }),
    [Symbol.dispose]: () => tree.close(),
  };
}

/** The last components of a path need not exist. */
function notThere(error: unknown): void {
  if (!(error instanceof NotFoundError)) throw error;
}

/** The store as a tree below each mount. A mount always exists. */
class BackendTree {
  readonly mountPaths: readonly VirtualPath[];
  readonly #backend: FileBackend;
  readonly #hosts: Map<VirtualPath, string>;

  constructor(backend: FileBackend, mounts: readonly { readonly path: VirtualPath; readonly host: string }[]) {
    this.#backend = backend;
    this.#hosts = new Map(mounts.map(({ path, host }) => [path, host]));
    this.mountPaths = [...this.#hosts.keys()];
  }

  close(): void {
    this.#hosts.clear();
  }

  #host(place: Place, parts = place.parts): string {
    const root = this.#hosts.get(place.mount);
    if (root === undefined) throw new RangeError(`there is no mount at ${place.mount}`);
    return join(root, ...parts);
  }

  async at(place: Place, parts = place.parts): Promise<BackendEntry | null> {
    const host = this.#host(place, parts);
    const found = await (this.#backend.stat?.(host) ?? entryByReading(this.#backend, host));
    return found === null && parts.length === 0 ? { type: "directory", size: 0 } : found;
  }

  async entry(operation: FileOperation, place: Place): Promise<BackendEntry> {
    await this.folder(operation, place, place.parts.slice(0, -1), false);
    const found = await this.at(place);
    if (found === null) throw new NotFoundError(place.path);
    return found;
  }

  async file(operation: FileOperation, place: Place): Promise<Buffer> {
    return Buffer.from(await this.content(operation, place));
  }

  async content(operation: FileOperation, place: Place): Promise<string | Uint8Array> {
    const { type } = await this.entry(operation, place);
    if (type === "directory") throw unfit(operation, place.path, IS_DIRECTORY);
    return await this.#backend.read(this.#host(place));
  }

  async names(place: Place): Promise<readonly string[]> {
    const host = this.#host(place);
    return place.parts.length === 0 && !(await this.#backend.exists(host)) ? [] : await this.#backend.list(host);
  }

  /** The directory that `parts` name, made if `create`. */
  async folder(operation: FileOperation, place: Place, parts: readonly string[], create: boolean) {
    for (let count = 1; count <= parts.length; count += 1) {
      const found = await this.at(place, parts.slice(0, count));
      if (found?.type === "directory") continue;
      if (found !== null) throw unfit(operation, place.path, BELOW_FILE);
      if (!create) throw new NotFoundError(place.path);
      await this.#backend.mkdir(this.#host(place, parts));
      return { created: true };
    }
    return { created: false };
  }

  /** What is in the place of the last component. */
  async slot(operation: FileOperation, place: Place, create = false) {
    if (place.parts.length === 0) throw unfit(operation, place.path, IS_MOUNT);
    const above = place.parts.slice(0, -1);
    await this.folder(operation, place, above, create);
    if (create) await this.#backend.mkdir(this.#host(place, above));
    return { there: await this.at(place) };
  }

  /** Text is given as text: a store may know nothing else. */
  async put(operation: FileOperation, place: Place, content: string | Uint8Array): Promise<void> {
    try {
      await this.#backend.write(this.#host(place), content);
    } catch (error) {
      throw error instanceof MemoryFullError ? unfit(operation, place.path, error.message) : error;
    }
  }

  async remove(place: Place): Promise<void> {
    await this.#backend.delete(this.#host(place));
  }

  async makeFolder(place: Place): Promise<void> {
    await this.#backend.mkdir(this.#host(place));
  }

  async version(place: Place, { type }: BackendEntry): Promise<string> {
    return type === "file" ? sha256(Buffer.from(await this.#backend.read(this.#host(place)))) : "";
  }

  async refuseChanged(operation: FileOperation, place: Place, expected: string | null): Promise<void> {
    const there = await this.at(place);
    if ((there === null ? null : await this.version(place, there)) !== expected)
      throw unfit(operation, place.path, CHANGED);
  }

  /** Everything at and below a place, each directory before what is in it. */
  async all(operation: FileOperation, place: Place): Promise<(BackendEntry & { readonly place: Place })[]> {
    const found = [{ ...(await this.entry(operation, place)), place }];
    for (let index = 0; index < found.length; index += 1) {
      const here = found[index];
      if (here?.type !== "directory") continue;
      const depth = here.place.parts.length - place.parts.length;
      for (const name of await this.names(here.place)) {
        const inner = inside(here.place, name);
        if (this.mountPaths.includes(inner.path)) continue;
        found.push({ ...((await this.at(inner)) ?? GONE), place: inner });
        if (found.length > MAX_TREE_ENTRIES || depth >= MAX_TREE_DEPTH)
          throw unfit(operation, place.path, "it holds too much for one operation. Work with its contents.");
      }
    }
    return found;
  }
}

const GONE: BackendEntry = { type: "file", size: 0 };

function inside(place: Place, name: string): Place {
  return { ...place, path: joinVirtual(place.path, name), parts: [...place.parts, name] };
}

function infoOf({ path }: Place, { type, size, modifiedMs = 0 }: BackendEntry): FileInfo {
  return { path, type, size: type === "file" ? size : null, modifiedMs };
}

function sourceOf(bytes: Buffer): ByteSource {
  return {
    size: bytes.length,
    read: async (position, length) => bytes.subarray(position, position + length),
    changed: () => false,
  };
}

async function remove(tree: BackendTree, place: Place, { recursive = false, checks, expected }: DeleteOptions) {
  const { there } = await tree.slot("delete", place);
  if (there === null) throw new NotFoundError(place.path);
  if (expected?.to != null) await tree.refuseChanged("delete", place, expected.to);
  if (there.type === "directory" && holdsMount(tree.mountPaths, place.path))
    throw unfit("delete", place.path, HOLDS_MOUNT);
  const all = await tree.all("delete", place);
  if (all.length > 1 && !recursive) throw unfit("delete", place.path, NOT_EMPTY);
  const files = all.filter(({ type }) => type === "file");
  for (const each of files) checks?.write?.(each.place.path, 0);
  for (const each of all.reverse()) await tree.remove(each.place);
  return { files: files.length, folders: all.length - files.length };
}

/** Copies; a move then removes the original. If any file is refused, nothing is changed. */
async function transfer(
  tree: BackendTree,
  operation: "move" | "copy",
  { from, to }: { readonly from: Place; readonly to: Place },
  { checks, overwrite = false, expected }: TransferOptions,
): Promise<Transferred> {
  const { path } = from;
  if (operation === "move") {
    if (path === to.path) throw unfit(operation, path, SAME_PLACE);
    await tree.slot(operation, from);
  }
  const { type } = await tree.entry(operation, from);
  if (type === "directory") {
    if (covers(path, to.path)) throw unfit(operation, path, intoItself(to.path));
    if (holdsMount(tree.mountPaths, path) && from.parts.length > 0) throw unfit(operation, path, HOLDS_MOUNT);
  }
  if (expected?.from !== undefined) await tree.refuseChanged(operation, from, expected.from);
  const all = await tree.all(operation, from);
  const moved = all.map((each) => {
    const rest = each.place.parts.slice(from.parts.length);
    return { ...each, to: rest.reduce(inside, to) };
  });
  for (const each of moved) {
    if (each.type === "directory") continue;
    if (operation === "move") checks?.write?.(each.place.path, 0);
    checks?.read?.(each.place.path, each.size);
    checks?.write?.(each.to.path, each.size);
  }
  const { there } = await tree.slot(operation, to, true);
  if (there?.type === "directory" && type === "file") throw unfit(operation, to.path, IS_DIRECTORY);
  if (there !== null && !(overwrite && type === "file")) throw unfit(operation, to.path, TAKEN);
  if (expected?.to !== undefined) await tree.refuseChanged(operation, to, expected.to);
  for (const each of moved) {
    if (each.type === "directory") await tree.makeFolder(each.to);
    else await tree.put(operation, each.to, await tree.content(operation, each.place));
  }
  if (operation === "move") for (const each of all.toReversed()) await tree.remove(each.place);
  const files = all.filter((each) => each.type === "file");
  return { files: files.length, bytes: files.reduce((sum, { size }) => sum + size, 0) };
}

async function listed(tree: BackendTree, place: Place, options: ListOptions): Promise<Listing> {
  const draft = new ListingDraft(place.path, options);
  if ((await tree.entry("list", place)).type !== "directory") throw unfit("list", place.path, NOT_DIRECTORY);
  await addFolder(tree, place, draft, options.signal);
  return draft.finish();
}

async function addFolder(
  tree: BackendTree,
  folder: Place,
  draft: ListingDraft,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (const name of await tree.names(folder)) {
    signal?.throwIfAborted();
    const path = draft.pathOf(folder.path, name);
    if (draft.full) return;
    if (path === null || tree.mountPaths.includes(path)) continue;
    const place = inside(folder, name);
    const entry = await tree.at(place);
    if (entry === null) continue;
    if (draft.wants(path)) draft.add({ path, type: entry.type, size: entry.type === "file" ? entry.size : null });
    if (entry.type !== "directory") continue;
    if (draft.depthOf(path) < draft.pattern.depth) await addFolder(tree, place, draft, signal);
    else if (draft.pattern.recursive) draft.cut();
  }
}

async function lookedAt(tree: BackendTree, place: Place, { operation, inside: within }: LookOptions): Promise<Looked> {
  const [own, ...below] = await Promise.all(
    (within ? await tree.all(operation, place) : [{ ...(await tree.entry(operation, place)), place }]).map(
      async (each) => ({
        path: each.place.path,
        type: each.type,
        size: each.type === "file" ? each.size : 0,
        mode: each.type === "file" ? 0o644 : 0o755,
        version: await tree.version(each.place, each),
      }),
    ),
  );
  if (own === undefined) throw new NotFoundError(place.path);
  if (own.type === "directory") return { ...own, content: null, entries: within ? below : null };
  const content = within && own.size <= MAX_EDIT_BYTES ? await tree.file(operation, place) : null;
  return { ...own, content, entries: null };
}
