import { canRead, canWrite, checkRead, readablePaths, writablePaths } from "../sandbox/access.ts";
import type { ChangeOperation } from "../sandbox/approval.ts";
import { FileTooLargeError, NotFoundError, type SandboxError } from "../sandbox/errors.ts";
import type { EntryKind } from "../sandbox/host-executed.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { below, covers, joinVirtual, ROOT, ROOTED_BASE, type VirtualPath } from "../sandbox/virtual-path.ts";
import { type AccessResolution, CheckedAccess, type ConsentNeed } from "./checked-access.ts";
import { foresee } from "./foresee.ts";
import {
  contentBytes,
  type Deleted,
  type DeleteOptions,
  type Edit,
  type Edited,
  type Expecting,
  type FileInfo,
  type Files,
  type ForeseenOperation,
  type Guard,
  type Hidden,
  type Intended,
  type ListEntry,
  type Listing,
  type ListOptions,
  mountedPlace,
  NOTHING_HIDDEN,
  type ReadOptions,
  type ReadResult,
  type TransferOptions,
  type Transferred,
  type WholeOptions,
  type WriteOptions,
  type Written,
} from "./model/files.ts";
import type { FileOperation } from "./model/refusals.ts";
import { leadsToMount, listNamespace, statNamespace, whyHidden } from "./namespace.ts";

type Unguarded<Options> = Omit<Options, "checks">;

/** What a path is, and what the operations on it would answer. */
export interface Inspected extends FileInfo {
  /** True if a file here is read, or a directory listed. */
  readonly readable: boolean;
  /** True if a file here is written, possibly after a question. */
  readonly writable: boolean;
}

/**
 * A sandbox's files, by the paths that a worker writes. What the sandbox does not allow is refused before anything is
 * touched, with a `SandboxError` that says what is allowed. The caller asks for approval if {@link GuardedFiles.needs} says
 * so; what is `blocked` is refused here.
 */
export interface GuardedFiles {
  /** Where commands see what tools have at a path; null if it is the same path. */
  commandPath(path: VirtualPath): VirtualPath | null;
  /** The place that a text names, and what is allowed there. A place outside of what can be read is a refusal. */
  resolve(path: string): AccessResolution;
  readableRoots(): readonly VirtualPath[];
  writableRoots(): readonly VirtualPath[];
  /** `to`: the second path of a move or a copy. Throws like the operation itself if a path is refused. */
  needs(operation: FileOperation, path: string, to?: string): readonly ConsentNeed[];
  /** The same for one entry that an operation would change. */
  needAt(operation: ChangeOperation, path: VirtualPath, kind: EntryKind): ConsentNeed;

  /**
   * What a change would do, or the refusal that it would meet, so that a person is asked only about what can be done. The
   * operation checks again.
   */
  foresee(intended: Intended, options?: { readonly signal?: AbortSignal | undefined }): Promise<ForeseenOperation>;

  read(path: string, options?: Unguarded<ReadOptions & Guard>): Promise<ReadResult>;
  bytes(path: string, options: Unguarded<WholeOptions>): Promise<Buffer>;
  write(path: string, content: string | Uint8Array, options?: Unguarded<WriteOptions>): Promise<Written>;
  append(path: string, content: string | Uint8Array, options?: Unguarded<Guard & Expecting>): Promise<Written>;
  edit(path: string, edits: readonly Edit[], options?: Unguarded<Guard & Expecting>): Promise<Edited>;
  delete(path: string, options?: Unguarded<DeleteOptions>): Promise<Deleted>;
  move(from: string, to: string, options?: Unguarded<TransferOptions>): Promise<Transferred>;
  copy(from: string, to: string, options?: Unguarded<TransferOptions>): Promise<Transferred>;
  mkdir(path: string): Promise<{ readonly created: boolean }>;
  exists(path: string): Promise<boolean>;
  stat(path: string): Promise<FileInfo>;
  /** The same, and what reading and writing it would do now. */
  inspect(path: string): Promise<Inspected>;
  /** The place itself, after links. The last components of its path need not exist. */
  realPath(path: string): Promise<VirtualPath>;
  list(path?: string, options?: Unguarded<Omit<ListOptions, "base">>): Promise<Listing>;
}

/** `files` must have been opened with the sandbox's own mounts. */
export function guarded(files: Files, sandbox: Sandbox, hidden: Hidden = NOTHING_HIDDEN): GuardedFiles {
  const access = new CheckedAccess(sandbox, hidden);
  const { checks } = access;
  const told = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      throw error instanceof NotFoundError ? whyNotFound(error, sandbox, hidden) : error;
    }
  };
  return {
    commandPath: (path) => (sandbox.rooted ? joinVirtual(ROOTED_BASE, below(ROOT, path) ?? "") : null),
    resolve: (raw) => access.resolve(raw),
    readableRoots: () => readablePaths(sandbox),
    writableRoots: () => writablePaths(sandbox),
    needs: (operation, raw, to) => access.needs(operation, raw, to),
    needAt: (operation, path, kind) => access.needAt(operation, path, kind),
    foresee: (intended, options) =>
      told(() => foresee(intended, { files, access, mounts: sandbox.mounts.map(({ path }) => path), ...options })),

    read: (raw, options) => told(async () => files.read(access.toRead(raw), { ...options, checks })),
    bytes: (raw, options) => told(async () => files.bytes(access.toRead(raw), { ...options, checks })),
    write: async (raw, content, options) => {
      const bytes = contentBytes(content);
      return files.write(access.toWrite(raw, bytes.length), bytes, { ...options, checks });
    },
    append: async (raw, content, options) => {
      const bytes = contentBytes(content);
      return files.append(access.toWrite(raw, bytes.length), bytes, { ...options, checks });
    },
    edit: (raw, edits, options) => told(async () => files.edit(access.toWrite(raw, 0), edits, { ...options, checks })),
    delete: (raw, options) => told(async () => files.delete(access.toDelete(raw), { ...options, checks })),
    move: (from, to, options) =>
      told(async () => files.move(access.toDelete(from), access.toFolder(to), { ...options, checks })),
    copy: (from, to, options) =>
      told(async () => files.copy(access.toCopy(from), access.toFolder(to), { ...options, checks })),
    mkdir: async (raw) => files.mkdir(access.toFolder(raw)),
    exists: async (raw) => {
      const path = access.toSee(raw);
      const place = mountedPlace(sandbox.mounts, path);
      if (leadsToMount(sandbox, path) || place === null) return true;
      return (await files.exists(place)) && !(await isHidden(files, sandbox, path));
    },
    stat: (raw) => told(async () => shownInfo(files, sandbox, access.toSee(raw))),
    inspect: (raw) => told(async () => inspected(files, sandbox, access.toSee(raw))),
    realPath: (raw) => told(async () => realPath(files, sandbox, access.toSee(raw))),
    list: async (raw = ".", options = {}) => {
      const listing = await listNamespace(files, sandbox, access.toSee(raw), options, hidden);
      return sandbox.rooted ? { ...listing, entries: listing.entries.map(named) } : listing;
    },
  };
}

/** Refused for what `list` does not show. */
async function shownInfo(files: Files, sandbox: Sandbox, path: VirtualPath): Promise<FileInfo> {
  const info = await statNamespace(files, sandbox, path);
  const hidden = whyHidden(sandbox, info);
  if (hidden !== null) throw hidden;
  return info;
}

/** What cannot be described is there. */
async function isHidden(files: Files, sandbox: Sandbox, path: VirtualPath): Promise<boolean> {
  const info = await statNamespace(files, sandbox, path).catch(() => null);
  return info !== null && whyHidden(sandbox, info) !== null;
}

async function inspected(files: Files, sandbox: Sandbox, path: VirtualPath): Promise<Inspected> {
  const info = await shownInfo(files, sandbox, path);
  const { type, size } = info;
  if (type === "link" || type === "other") return { ...info, readable: false, writable: false };
  const real = await realPath(files, sandbox, path);
  const directory = type === "directory";
  const facts = { directory, ...(size === null ? {} : { size }) };
  const readable = leadsToMount(sandbox, path) || [path, real].every((one) => canRead(sandbox, one, facts));
  // Nothing is written through a link. A file that is too large may be replaced by a smaller one.
  return { ...info, readable, writable: real === path && canWrite(sandbox, path, { directory }) };
}

async function realPath(files: Files, sandbox: Sandbox, path: VirtualPath): Promise<VirtualPath> {
  const place = mountedPlace(sandbox.mounts, path);
  if (place === null) return path;
  try {
    return await files.resolve(place);
  } catch (error) {
    if (leadsToMount(sandbox, path) && error instanceof NotFoundError) return path;
    throw error;
  }
}

/** With the root form, `/project` names the root, so a directory of that name is named as commands see it. */
function named(entry: ListEntry): ListEntry {
  return covers(ROOTED_BASE, entry.path)
    ? { ...entry, path: joinVirtual(ROOTED_BASE, below(ROOT, entry.path) ?? "") }
    : entry;
}

/**
 * A view leaves out what may not be read, so it looks as if it did not exist. A suffix that is not allowed is named whether or
 * not there is such a file, so that nothing is learned of its name; a file that is too large is reported with its size.
 */
function whyNotFound(error: NotFoundError, sandbox: Sandbox, hidden: Hidden): SandboxError {
  if (error.path === null) return error;
  const path = error.path as VirtualPath;
  const size = hidden.sizeAt(path);
  return checkRead(sandbox, path, size === null ? {} : { size }) ?? error;
}

/**
 * The same files, with a limit on the bytes that one operation may write, as the kernel limits programs. A copied folder
 * counts as a whole. A move needs no limit, since it takes no more space.
 */
export function boundedWrites(files: Files, maxBytes: number): Files {
  return {
    ...files,
    maxWriteBytes: maxBytes,
    write: (place, content, options) => files.write(place, content, bounded(options, maxBytes)),
    append: (place, content, options) => files.append(place, content, bounded(options, maxBytes)),
    edit: (place, edits, options) => files.edit(place, edits, bounded(options, maxBytes)),
    copy: (from, to, options) => files.copy(from, to, bounded(options, maxBytes)),
  };
}

/** An append may report the size of its file twice, so the last size of each path counts. */
function bounded<Options extends Guard>(options: Options | undefined, maxBytes: number): Options & Guard {
  const sizes = new Map<string, number>();
  let all = 0;
  return {
    ...(options as Options),
    checks: {
      ...options?.checks,
      write(path, size) {
        options?.checks?.write?.(path, size);
        all += size - (sizes.get(path) ?? 0);
        sizes.set(path, size);
        if (all > maxBytes) throw new FileTooLargeError(path, all, maxBytes);
      },
    },
  };
}
