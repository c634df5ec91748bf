import { codeOf } from "../../platform/errno.ts";
import {
  FileLeasedError,
  FileSystemError,
  NotFoundError,
  PermissionError,
  SandboxError,
} from "../../sandbox/errors.ts";
import { formatBytes } from "../../text/amounts.ts";

export type FileOperation =
  | "read"
  | "write"
  | "append"
  | "edit"
  | "delete"
  | "move"
  | "copy"
  | "mkdir"
  | "exists"
  | "stat"
  | "list";

const VERBS: Readonly<Record<FileOperation, string>> = {
  read: "read",
  write: "write",
  append: "write",
  edit: "edit",
  delete: "delete",
  move: "move",
  copy: "copy",
  mkdir: "create",
  exists: "inspect",
  stat: "inspect",
  list: "list",
};

/** Runs one operation. An errno of the system becomes a refusal that a worker can act on. */
export async function withRefusals<T>(operation: FileOperation, path: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw refusalOf(operation, path, error);
  }
}

/** A refusal for something that exists but does not fit the operation. */
export function unfit(operation: FileOperation, path: string, reason: string): FileSystemError {
  return new FileSystemError(path, VERBS[operation], reason);
}

/** A link that leads out of its mount. */
export class LinkLeavesError extends FileSystemError {
  constructor(operation: FileOperation, path: string) {
    super(path, VERBS[operation], `${LINK_LEAVES}.`);
  }
}

export const LINK_LEAVES = "a symbolic link in its path leads out of the directory that was granted";

/** The system's texts name host paths and descriptors: they stay in the cause, which no worker sees. */
function refusalOf(operation: FileOperation, path: string, error: unknown): unknown {
  if (error instanceof SandboxError || !isErrno(error)) return error;
  const cause = { cause: error };
  if (error.code === "ENOENT") return new NotFoundError(path);
  if (error.code === "EAGAIN" && error.syscall === "open") return new FileLeasedError(path, VERBS[operation], cause);
  const refused = REFUSED[error.code];
  if (refused !== undefined) return new PermissionError(path, consentKind(operation), refused, cause);
  const reason = REASONS[error.code] ?? `the file system reported ${error.code}.`;
  return new FileSystemError(path, VERBS[operation], reason, cause);
}

function consentKind(operation: FileOperation): "read" | "write" | "delete" {
  if (operation === "delete") return "delete";
  return ["read", "exists", "stat", "list"].includes(operation) ? "read" : "write";
}

export const IS_DIRECTORY = "it is a directory. Name a file in it, or list it.";
export const NOT_DIRECTORY = "it is not a directory. Read it instead.";
export const BELOW_FILE = "part of its path is a file, not a directory. List the parent directory.";
export const TAKEN = "it already exists. Choose another name, or ask to overwrite it.";
export const NOT_EMPTY = "the directory is not empty. Delete its contents first, or delete it recursively.";
export const IS_MOUNT = "it is itself a granted directory. Work with its contents.";
export const HOLDS_MOUNT = "it holds a directory that was granted separately. Work with its contents.";
export const SAME_PLACE = "the old and the new path are the same.";

export const CHANGED = "it was changed after it was shown for approval. Look at it again, and use the tool again.";

/** For a directory that would be copied or moved into itself. */
export function intoItself(to: string): string {
  return `'${to}' is inside of it, and a directory cannot be put into itself.`;
}

/** For content that is needed as a whole. Both sizes are in bytes. */
export function tooLargeText(size: number, maxBytes: number): string {
  return `it is ${formatBytes(size)}, and at most ${formatBytes(maxBytes)} are read at once.`;
}

const REFUSED: Readonly<Record<string, string>> = {
  EACCES: "the file permissions do not allow it. Use another file.",
  EPERM: "the system does not allow it for this file. Use another file.",
  EROFS: "its file system is read-only. Write to another directory.",
};

const REASONS: Readonly<Record<string, string>> = {
  EISDIR: IS_DIRECTORY,
  ENOTDIR: BELOW_FILE,
  EEXIST: TAKEN,
  ENOTEMPTY: NOT_EMPTY,
  ENOSPC: "the disk is full. Delete files that are no longer needed, or write less.",
  EDQUOT: "the disk quota is used up. Delete files that are no longer needed, or write less.",
  EFBIG: "the file would be larger than the system allows. Write less.",
  ENAMETOOLONG: "the name is too long. Choose a shorter name.",
  EBUSY: "it is in use as a granted directory. Work with its contents.",
  EMFILE: "too many files are open. Try again.",
  ENFILE: "too many files are open. Try again.",
  ELOOP: "a symbolic link is in its path. Name the place that the link leads to.",
  ESTALE: "it was replaced at the same time. Try again.",
  EIO: "the disk reported an error.",
  ETXTBSY: "a program is running from it. Try again after that program has ended, or replace the file.",
};

type Errno = Error & { readonly code: string; readonly syscall: string };

function isErrno(error: unknown): error is Errno {
  return error instanceof Error && "syscall" in error && codeOf(error) !== undefined;
}

/** What cannot be shown as it is. A command, or a worker that it is attached to, may take it: the face knows which of these there is. */
export class UnshownContentError extends FileSystemError {}

export function notText(path: string, mimeType: string | null): SandboxError {
  const what = mimeType === null ? "it is not UTF-8 text" : `it is ${mimeType}, not text`;
  return new UnshownContentError(path, VERBS.read, `${what}.`);
}
