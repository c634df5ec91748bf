import { FileSystemError, NotFoundError, PermissionError, SandboxError } from "../../sandbox/errors.ts";

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
  exists: "look at",
  stat: "look at",
  list: "list",
};

/** Runs one operation; what the system answers with an errno becomes a refusal that a worker can act on. */
export async function told<T>(operation: FileOperation, path: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw refusalOf(operation, path, error);
  }
}

/** A refusal for what is there but is not fit for the operation. */
export function unfit(operation: FileOperation, path: string, reason: string): FileSystemError {
  return new FileSystemError(path, VERBS[operation], reason);
}

/** The system's texts name host paths and descriptors: they stay in the cause, which no worker is shown. */
function refusalOf(operation: FileOperation, path: string, error: unknown): unknown {
  if (error instanceof SandboxError || !isErrno(error)) return error;
  const cause = { cause: error };
  if (error.code === "ENOENT") return new NotFoundError(path);
  const refused = REFUSED[error.code];
  if (refused !== undefined) return new PermissionError(path, consentKind(operation), refused, cause);
  const reason = REASONS[error.code] ?? `the file system answered ${error.code}.`;
  return new FileSystemError(path, VERBS[operation], reason, cause);
}

function consentKind(operation: FileOperation): "read" | "write" | "delete" {
  if (operation === "delete") return "delete";
  return ["read", "exists", "stat", "list"].includes(operation) ? "read" : "write";
}

const REFUSED: Readonly<Record<string, string>> = {
  EACCES: "its owner has not opened it to the user that runs this. Work with another file.",
  EPERM: "the system does not allow it for this file. Work with another file.",
  EROFS: "the file system there is read-only. Write to another directory.",
};

const REASONS: Readonly<Record<string, string>> = {
  EISDIR: "it is a directory. Name a file in it, or list it.",
  ENOTDIR: "a file stands where a directory is needed. List the directory above it.",
  EEXIST: "something of that name is there already. Choose another name, or ask to overwrite it.",
  ENOTEMPTY: "the directory is not empty. Delete what is in it first, or delete it recursively.",
  ENOSPC: "there is no space left. Delete what is no longer needed, or write less.",
  EDQUOT: "the space that may be used there is used up. Delete what is no longer needed, or write less.",
  EFBIG: "the file would be larger than the system allows. Write less.",
  ENAMETOOLONG: "the name is too long. Choose a shorter one.",
  EBUSY: "it is in use as a directory that was granted. Work with what is in it.",
  EMFILE: "too many files are open at the moment. Try again.",
  ENFILE: "too many files are open at the moment. Try again.",
  ELOOP: "a symbolic link stands in its path. Name the place that it leads to.",
  ESTALE: "it was replaced meanwhile. Try again.",
  EIO: "the disk reported an error.",
};

type Errno = Error & { readonly code: string };

function isErrno(error: unknown): error is Errno {
  return error instanceof Error && "syscall" in error && typeof (error as NodeJS.ErrnoException).code === "string";
}

/** The way out for what is no text: a worker that has the tools for it gets the file as it is. */
export function notText(path: string, mimeType: string | null): SandboxError {
  const what = mimeType === null ? "it is not UTF-8 text" : `it is ${mimeType}, not text`;
  return unfit("read", path, `${what}. Pass it as an attachment to a worker that can handle it.`);
}
