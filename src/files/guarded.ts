import { canRead, canWrite, checkRead, readablePaths, writablePaths } from "../sandbox/access.ts";
import type { ChangeOperation } from "../sandbox/approval.ts";
import { FileTooLargeError, NotFoundError, type SandboxError } from "../sandbox/errors.ts";
import type { EntryKind } from "../sandbox/host-executed.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { below, covers, joinVirtual, ROOT, ROOTED_BASE, type VirtualPath } from "../sandbox/virtual-path.ts";
import { type AccessResolution, CheckedAccess, type ConsentNeed } from "./checked-access.ts";
import { editedContent } from "./edit/edited-content.ts";
import {
  contentBytes,
  type Deleted,
  type DeleteOptions,
  type Edit,
  type Edited,
  type Effect,
  type Expecting,
  type FileInfo,
  type Files,
  type ForeseenOperation,
  type Guard,
  type Hidden,
  holdsMount,
  type Intended,
  type ListEntry,
  type Listing,
  type ListOptions,
  type Looked,
  type LookOptions,
  mountedPlace,
  NOTHING_HIDDEN,
  type Place,
  type ReadOptions,
  type ReadResult,
  type TransferOptions,
  type Transferred,
  type Version,
  type WholeOptions,
  type WriteOptions,
  type Written,
  whyNotRegular,
} from "./model/files.ts";
import {
  type FileOperation,
  HOLDS_MOUNT,
  IS_MOUNT,
  intoItself,
  NOT_EMPTY,
  SAME_PLACE,
  TAKEN,
  unfit,
} from "./model/refusals.ts";
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

export interface Foreseeing {
  readonly files: Pick<Files, "look" | "maxWriteBytes">;
  readonly access: CheckedAccess;
  /** The paths of all mounts. */
  readonly mounts: readonly VirtualPath[];
  readonly signal?: AbortSignal | undefined;
}

type Of<Operation extends Intended["operation"]> = Extract<Intended, { operation: Operation }>;
type Seen = Omit<ForeseenOperation, "places"> & Partial<Pick<ForeseenOperation, "places">>;

/**
 * What an operation would do, or the refusal that it would meet: a person is asked only about what can be done. The
 * operation itself checks everything again, because the answer may take minutes.
 */
export async function foresee(intended: Intended, around: Foreseeing): Promise<ForeseenOperation> {
  const seen = await seenOf(intended, around);
  refuseTooMuch(seen.effects, around.files.maxWriteBytes);
  return { places: [], ...seen };
}

function seenOf(intended: Intended, around: Foreseeing): Promise<Seen> {
  switch (intended.operation) {
    case "write":
      return writing(intended, around);
    case "append":
      return appending(intended, around);
    case "edit":
      return editing(intended, around);
    case "delete":
      return deleting(intended, around);
    case "move":
    case "copy":
      return transferring(intended, around);
  }
}

async function writing({ path, content, overwrite = true }: Of<"write">, around: Foreseeing): Promise<Seen> {
  const bytes = contentBytes(content);
  const place = around.access.toWrite(path, bytes.length);
  const there = await targetAt("write", place, overwrite, around);
  return writes(place, there, bytes);
}

async function appending({ path, content }: Of<"append">, around: Foreseeing): Promise<Seen> {
  const bytes = contentBytes(content);
  const place = around.access.toWrite(path, bytes.length);
  const there = await targetAt("append", place, true, around);
  const size = (there?.size ?? 0) + bytes.length;
  around.access.checks.write?.(place.path, size);
  const before = there === null ? Buffer.alloc(0) : there.content;
  const after = before === null ? null : Buffer.concat([before, bytes]);
  if (after !== null) return writes(place, there, after);
  const mode = there?.mode ?? null;
  return effectOn(place, there, { bytes: size, mode, content: null });
}

async function editing({ path, edits }: Of<"edit">, around: Foreseeing): Promise<Seen> {
  const place = around.access.toWrite(path, 0);
  const there = await lookedAt("edit", place, "refuse", around);
  refuseIrregular("edit", place, there);
  around.access.checks.read?.(there.path, there.size);
  const content = there.content ?? Buffer.alloc(0);
  const source = {
    size: there.size,
    read: async (position: number, length: number) => content.subarray(position, position + length),
    changed: () => false,
  };
  const { bytes, places } = await editedContent(source, place.path, edits);
  around.access.checks.write?.(there.path, bytes.length);
  return { ...writes(place, there, bytes), places };
}

async function deleting({ path, recursive = false }: Of<"delete">, around: Foreseeing): Promise<Seen> {
  const place = around.access.toDelete(path);
  refuseMount("delete", place);
  const there = await lookedAt("delete", place, "refuse", around);
  const effects = removalOf("delete", there, place, around);
  if (there.type === "directory" && !recursive && effects.length > 1) throw unfit("delete", place.path, NOT_EMPTY);
  return { effects, expected: there.type === "directory" ? {} : { from: there.version } };
}

async function transferring({ operation, path, to, overwrite }: Of<"move" | "copy">, around: Foreseeing) {
  const { access } = around;
  const source = operation === "move" ? access.toDelete(path) : access.toCopy(path);
  const target = access.toFolder(to);
  if (operation === "move" && source.path === target.path) throw unfit(operation, source.path, SAME_PLACE);
  if (operation === "move") refuseMount(operation, source);
  const from = await lookedAt(operation, source, operation === "move" ? "refuse" : "follow", around);
  const isFolder = from.type === "directory";
  if (isFolder) {
    if (covers(source.path, target.path) || covers(from.path, target.path))
      throw unfit(operation, source.path, intoItself(target.path));
    refuseHolding(operation, source, from.path, around);
  } else refuseIrregular(operation, source, from);
  const there = await targetAt(operation, target, !isFolder && (overwrite ?? false), around);
  if (isFolder && target.parts.length > 0) refuseHolding(operation, target, target.path, around);
  const removed = operation === "move" ? removalOf(operation, from, source, around) : [];
  const made = isFolder
    ? folderEffects(operation, from, source, target.path, around)
    : [fileEffect(operation, from, source, target, there, around)];
  const expected = { ...(isFolder ? {} : { from: from.version }), to: there?.version ?? null };
  return { effects: [...removed, ...made], expected };
}

function fileEffect(
  operation: "move" | "copy",
  from: Looked,
  source: Place,
  target: Place,
  there: Looked | null,
  { access }: Foreseeing,
): Effect {
  access.checks.read?.(from.path, from.size);
  access.checks.write?.(target.path, from.size);
  // A rename keeps the bits of the file; content that replaces a file gets the bits of that file.
  const isRename = operation === "move" && source.mount === target.mount;
  const mode = there === null || isRename ? from.mode : there.mode;
  const after = { bytes: from.size, mode, content: from.content };
  return { kind: "write", path: target.path, before: versionIn(there), after };
}

function folderEffects(
  operation: "move" | "copy",
  from: Looked,
  source: Place,
  to: VirtualPath,
  { access }: Foreseeing,
): Effect[] {
  const effects = (from.entries ?? []).map(({ path, type, size, mode }): Effect => {
    const target = joinVirtual(to, below(from.path, path) ?? "");
    if (type === "directory") return { kind: "folder", path: target };
    if (type === "file") {
      access.checks.read?.(path, size);
      access.checks.write?.(target, size);
    } else if (operation === "copy") {
      const what = type === "link" ? "a symbolic link" : "not a regular file";
      const reason = `it contains '${path}', which is ${what}. Delete that, or copy single files.`;
      throw unfit(operation, source.path, reason);
    }
    return { kind: "write", path: target, before: null, after: { bytes: size, mode, content: null } };
  });
  return [{ kind: "folder", path: to }, ...effects];
}

/** Everything that goes, each entry before the directory that holds it. */
function removalOf(operation: "delete" | "move", from: Looked, place: Place, around: Foreseeing): Effect[] {
  if (from.type === "directory") refuseHolding(operation, place, from.path, around);
  const all = [from, ...(from.entries ?? [])];
  // Size 0: a deletion never exceeds a size limit.
  for (const { path, type } of all) if (type === "file") around.access.checks.write?.(path, 0);
  return all.toReversed().map(({ path, type }): Effect => ({ kind: "delete", path, type }));
}

function writes(place: Place, there: Looked | null, content: Uint8Array): Seen {
  return effectOn(place, there, { bytes: content.length, mode: there?.mode ?? null, content });
}

function effectOn({ path }: Place, there: Looked | null, after: Version): Seen {
  const effect: Effect = { kind: "write", path, before: versionIn(there), after };
  return { effects: [effect], expected: { to: there?.version ?? null } };
}

function versionIn(there: Looked | null): Version | null {
  return there === null ? null : { bytes: there.size, mode: there.mode, content: there.content };
}

/** The regular file that would be written or replaced; null if the name is free. */
async function targetAt(
  operation: FileOperation,
  place: Place,
  overwrite: boolean,
  around: Foreseeing,
): Promise<Looked | null> {
  const there = await lookedAt(operation, place, "refuse", around).catch((error: unknown) => {
    if (error instanceof NotFoundError) return null;
    throw error;
  });
  if (there === null) return null;
  refuseIrregular(operation, place, there);
  if (place.parts.length === 0 && (operation === "move" || operation === "copy")) refuseMount(operation, place);
  if (!overwrite) throw unfit(operation, place.path, TAKEN);
  return there;
}

async function lookedAt(
  operation: FileOperation,
  place: Place,
  links: LookOptions["links"],
  { files, signal }: Foreseeing,
): Promise<Looked> {
  return await files.look(place, { operation, links, inside: true, signal });
}

function refuseIrregular(operation: FileOperation, place: Place, { type }: Pick<Looked, "type">): void {
  if (type === "directory" && place.parts.length === 0) refuseMount(operation, place);
  const refusal = whyNotRegular(type);
  if (refusal !== null) throw unfit(operation, place.path, refusal);
}

function refuseMount(operation: FileOperation, { path, parts }: Place): void {
  if (parts.length === 0) throw unfit(operation, path, IS_MOUNT);
}

/** `path`: the place itself, or where a link led. */
function refuseHolding(operation: FileOperation, place: Place, path: VirtualPath, { mounts }: Foreseeing): void {
  const inner = mounts.filter((mount) => mount !== place.mount && covers(place.mount, mount));
  if (holdsMount(inner, path)) throw unfit(operation, place.path, HOLDS_MOUNT);
}

function refuseTooMuch(effects: readonly Effect[], maxBytes: number | undefined): void {
  if (maxBytes === undefined) return;
  let all = 0;
  for (const effect of effects) {
    if (effect.kind !== "write") continue;
    all += effect.after.bytes;
    if (all > maxBytes) throw new FileTooLargeError(effect.path, all, maxBytes);
  }
}
